"""The one thing that is changed on a host which does not pass preflight: its driver, and only if that was asked for."""

import contextlib
import time
from collections.abc import Generator
from typing import TYPE_CHECKING

from pyinfra import logger, state
from pyinfra.api import FunctionCommand, operation

from roles._lib.facts import Run, author, current, execute, observe
from sparkfleet.agent import wire
from sparkfleet.bundle import carried_agent

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

#: What an installation mends, and what the reboot after it.
_INSTALL = {"driver-too-old", "driver-known-bad"}
_REBOOT = {"driver-mismatch", "gpu-mismatch"}

#: Seconds until a Spark must be back: a firmware update at the next boot takes a quarter of an hour.
PATIENCE = 1800.0

#: Detached, so that the session ends in good order before the host does.
_GO = "systemd-run --quiet --on-active=1 --timer-property=AccuracySec=100ms systemctl reboot"


def mends(run: Run) -> bool:
    """Whether an installation, or a reboot that may be done, is all that this host lacks."""
    stops = {one.rule for one in run.seen.findings if one.severity == "stop"} if run.seen and not run.trouble else set()
    if not stops or not run.plan.driver_install:
        return False
    return stops <= _INSTALL or (run.plan.driver_reboot and stops <= _INSTALL | _REBOOT)


def mend(run: Run) -> None:
    """Add the operation; what follows on this host is decided when it has a good driver."""
    run.mending = True
    _mend(name="preflight | a driver that may serve")


@operation()
def _mend() -> Generator[FunctionCommand, None, None]:
    run = current()
    if not state.is_executing:
        after = "then reboot" if run.plan.driver_reboot else "then ask for a reboot"
        logger.info(f"{run.host.print_prefix}driver: install {', '.join(run.wanted.driver.packages)}, {after}")
    yield FunctionCommand(_carry_out, (run,), {})


def _carry_out(state: "State", host: "Host", run: Run) -> bool:
    """Install, reboot, look again. False fails the host."""
    run.failed = "driver"
    stops = {one.rule for one in run.seen.findings if one.severity == "stop"} if run.seen else set()
    if stops & _INSTALL and not _install(host, run):
        return False
    if not run.plan.driver_reboot:
        logger.error(f"{host.print_prefix}the driver is installed: reboot (`sudo systemctl reboot`), then run again.")
        run.failed = "driver (installed; it waits for a reboot)"
        return False
    if not _reboot(host, run):
        return False
    for line in run.blocked.splitlines():
        logger.error(f"{host.print_prefix}{line}")
    run.failed = "driver" if run.blocked else ""
    return not run.blocked


def _install(host: "Host", run: Run) -> bool:
    command, code = carried_agent("apply driver")  # the agent is laid down on hosts that pass preflight only
    try:
        good, _ = execute(host, command, [code, wire.encode(author()), wire.encode(run.wanted.driver)], show=True)
    except ConnectionError as error:
        logger.error(f"{host.print_prefix}the connection was lost ({error}). apt goes on there; run again after it.")
        return False
    return good


def _reboot(host: "Host", run: Run) -> bool:
    """Reboot and wait until another boot answers; the state held is that of the new one."""
    before = run.seen.machine.system.boot_id if run.seen else None
    logger.info(f"{host.print_prefix}rebooting; it may take a quarter of an hour if firmware comes along")
    with contextlib.suppress(ConnectionError):  # it may be faster than its answer
        execute(host, _GO, [], show=False)
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        time.sleep(2)
        host.disconnect()
        host.connect(show_errors=False)
        if host.connected:
            observe(run, adopt=True)
            if run.seen and run.seen.machine.system.boot_id != before:
                logger.info(f"{host.print_prefix}it is back, with driver {run.seen.machine.gpu.driver or 'unknown'}")
                return True
    logger.error(f"{host.print_prefix}it did not come back within {PATIENCE / 60:.0f} minutes. Look at its console.")
    return False
