"""Converge: give the agent an order of a role when something of it differs, and see what came of it."""

from collections.abc import Callable, Generator, Iterable

from pyinfra import host, logger, state
from pyinfra.api import FunctionCommand, StringCommand, operation
from pyinfra.api.host import Host
from pyinfra.api.state import State

from roles._lib.facts import Run, author, current, elevated, observe
from sparkfleet.agent import wire
from sparkfleet.bundle import agent_hash
from sparkfleet.changes import AGENT, ROLES
from sparkfleet.desired import Desired

#: The orders of a role: dataclasses of ``sparkfleet.agent.shapes``.
Orders = Callable[[Desired, Run], Iterable[object]]


def converge(role: str, what: str, orders: Orders) -> None:
    """Add the operation of ``role`` for this host if anything up to this role differs there.

    A host that is as it should be gets no operation at all: that is what makes a second run cost one login.
    """
    before = ROLES[: ROLES.index(role) + 1]
    if any(change.role in before for change in current().pending()):
        _converge(name=f"{role} | {what}", role=role, orders=orders)


@operation()
def _converge(role: str, orders: Orders) -> Generator[FunctionCommand, None, None]:
    run = current()
    todo = [change for change in run.pending() if change.role == role]
    if not todo:
        host.noop(f"{role}: nothing differs")
        return
    if not state.is_executing:
        for change in todo:
            logger.info(f"{host.print_prefix}{role}: {change}")
    yield FunctionCommand(_order, (run, role, orders), {})


def refuse(reason: str) -> None:
    """Fail this host, and only this one, before anything is changed on it."""
    _refuse(name="preflight | nothing is changed on a host that does not pass", reason=reason)


@operation()
def _refuse(reason: str) -> Generator[FunctionCommand, None, None]:
    yield FunctionCommand(_fail, (reason,), {})


def _fail(state: State, host: Host, reason: str) -> bool:
    return False


def _order(state: State, host: Host, run: Run, role: str, orders: Orders) -> bool:
    """Carry out the role on the host; pyinfra calls this when it executes."""
    _settle(run)
    todo = [change for change in run.pending() if change.role == role]
    for order in orders(run.wanted, run) if todo else ():
        lines = [wire.encode(author()), wire.encode(order)]
        command = StringCommand(f"python3 -I {AGENT} apply {role}")
        good, _ = host.run_shell_command(command, print_output=True, _stdin=lines, **elevated(host))
        if not good:
            run.failed = role
            return False
    observe(run, adopt=False)
    run.done += todo
    return not run.trouble or _report(run, role)


def _settle(run: Run) -> None:
    if run.seen and run.seen.agent != agent_hash():
        observe(run, adopt=True)


def _report(run: Run, role: str) -> bool:
    logger.error(f"{run.host.print_prefix}{run.trouble}")
    run.failed = role
    return False
