"""Converge: give the agent an order of a role when something of it differs, and see what came of it."""

from collections.abc import Callable, Generator, Iterable

from pyinfra import host, logger, state
from pyinfra.api import FunctionCommand, operation
from pyinfra.api.host import Host
from pyinfra.api.state import State

from roles._lib.facts import Run, all_runs, author, current, execute, observe
from sparkfleet.agent import wire
from sparkfleet.bundle import agent_hash, carried_agent, installed_agent
from sparkfleet.changes import ROLES, Change
from sparkfleet.desired import Desired
from sparkfleet.errors import UserError

#: The orders of a role: dataclasses of ``sparkfleet.agent.shapes``.
Orders = Callable[[Desired, Run], Iterable[object]]


def converge(role: str, what: str, orders: Orders) -> None:
    """Add the operation of ``role`` for this host if anything up to this role differs there.

    A host that is as it should be gets no operation at all: that is what makes a second run cost one login.
    """
    before = ROLES[: ROLES.index(role) + 1]
    if current().mending or any(change.role in before for change in current().pending()):
        _converge(name=f"{role} | {what}", role=role, orders=orders, always=False)


def order(role: str, what: str, orders: Orders) -> None:
    """Add the operation of ``role`` for this host whether or not anything differs."""
    _converge(name=f"{role} | {what}", role=role, orders=orders, always=True)


def measure(role: str, what: str, orders: Orders, fetch: Callable[[Run], None]) -> None:
    """Add the operation that has the agent measure something on this host; ``fetch`` then asks it for the results."""
    _measure(name=f"{role} | {what}", role=role, orders=orders, fetch=fetch)


def take_off(what: str, orders: Orders) -> None:
    """Add the operation that removes sparkfleet from this host, even if it is blocked. The agent that does it comes
    along and runs from memory.
    """
    _take_off(name=f"uninstall | {what}", orders=orders)


def refuse(reason: str, role: str = "preflight", what: str = "a host that does not pass is left as it is") -> None:
    """Fail this host, and only this one, before anything is changed on it."""
    run = all_runs().get(host.name)
    if run:
        run.refused = True
        run.failed, run.why = ("", "") if run.blocked else (role, reason)
    _refuse(name=f"{role} | {what}", reason=reason)


@operation()
def _converge(role: str, orders: Orders, always: bool) -> Generator[FunctionCommand, None, None]:
    run = current()
    todo = _todo(run, role)
    if not todo and not always:
        host.noop(f"{role}: nothing differs")
        return
    if not state.is_executing:
        for change in todo:
            logger.info(f"{host.print_prefix}{role}: {change}")
    yield FunctionCommand(_carry_out, (run, role, orders), {})


@operation()
def _measure(role: str, orders: Orders, fetch: Callable[[Run], None]) -> Generator[FunctionCommand, None, None]:
    yield FunctionCommand(_take_measure, (current(), role, orders, fetch), {})


@operation()
def _take_off(orders: Orders) -> Generator[FunctionCommand, None, None]:
    yield FunctionCommand(_remove, (current(), orders), {})


@operation()
def _refuse(reason: str) -> Generator[FunctionCommand, None, None]:
    yield FunctionCommand(_fail, (reason,), {})


def _fail(state: State, host: Host, reason: str) -> bool:
    return False  # the reason has been shown when the host was observed


def _carry_out(state: State, host: Host, run: Run, role: str, orders: Orders) -> bool:
    """Give the orders; pyinfra calls this when it executes. False fails the host."""
    if run.seen and run.seen.agent != agent_hash():
        observe(run, adopt=True)
    todo = _todo(run, role)
    good = not run.blocked and _give_all(host, run, role, orders)
    observe(run, adopt=False)
    if not good or run.blocked:
        run.failed = role
        if run.blocked:
            _complain(host, run, run.blocked)
        return False
    run.done += todo
    return True


def _take_measure(state: State, host: Host, run: Run, role: str, orders: Orders, fetch: Callable[[Run], None]) -> bool:
    good = _give_carried(host, run, role, orders)  # the host's own may be another, and nothing is to be changed there
    run.failed = "" if good else role
    fetch(run)
    return good


def _remove(state: State, host: Host, run: Run, orders: Orders) -> bool:
    good = _give_carried(host, run, "uninstall", orders)
    observe(run, adopt=False)
    run.failed = "" if good else "uninstall"
    return good


def _give_all(host: Host, run: Run, role: str, orders: Orders) -> bool:
    try:
        return all(_give(host, run, installed_agent(f"apply {role}"), one) for one in orders(run.wanted, run))
    except UserError as error:  # what an order takes is not on this machine: the other hosts may do without it
        return _complain(host, run, str(error))


def _give_carried(host: Host, run: Run, role: str, orders: Orders) -> bool:
    """The same by an agent that comes along and runs from memory."""
    command, code = carried_agent(f"apply {role}")
    return all(_give(host, run, command, one, code) for one in orders(run.wanted, run))


def _give(host: Host, run: Run, command: str, one: object, *before: str) -> bool:
    lines = [*before, wire.encode(author()), wire.encode(one)]
    try:
        good, output = execute(host, command, lines, show=True)
    except ConnectionError as error:
        return _complain(host, run, f"the connection was lost ({error}). Run again: the host goes on from there.")
    if not good:
        run.why = wire.legible("\n".join(filter(str.strip, output.stderr_lines)))
    return good


def _complain(host: Host, run: Run, why: str) -> bool:
    """Say why this host has failed, and keep it for the end of the run; always False."""
    run.why = why
    for line in why.splitlines():
        logger.error(f"{host.print_prefix}{line}")
    return False


def _todo(run: Run, role: str) -> list[Change]:
    return [change for change in run.pending() if change.role == role]
