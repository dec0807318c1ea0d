"""The beginning of a run: the plans of all hosts, before any of them is asked."""

import atexit
import sys
from collections.abc import Callable

from pyinfra import host, logger, state

from roles._lib import report
from roles._lib.facts import Run, all_runs, begin
from roles._lib.inventories import Refused
from roles._lib.wheel_sources import outside
from sparkfleet.errors import UserError
from sparkfleet.lint.findings import Finding, Unfit
from sparkfleet.plan import HostPlan, check_addresses, check_suppliers, plan_host

_plans: dict[str, HostPlan] = {}


def observed(
    at_end: Callable[[list[str]], None] = report.outcome,
    may_settle: bool = False,
    live: bool = False,
    looks_only: bool = False,
    removing: bool = False,
) -> Run:
    """This host, observed. The first call plans every host of the run, and has ``at_end`` told their names at the end.
    ``may_settle``: the agent may be laid down on a host that passes preflight, in a run that is not a dry one.
    ``live``: engines are asked what they are doing. ``looks_only``: the run changes nothing on any host.
    ``removing``: the host tells what an uninstall would remove.

    Raises Refused, which ends the run for all hosts, when the data of any cannot be planned: nothing has been
    asked or changed anywhere then.
    """
    if not _plans:
        _plan_all(looks_only)
        atexit.register(lambda: at_end([one.name for one in state.inventory if state.is_host_in_limit(one)]))
    run = all_runs().get(host.name)
    if run:
        return run
    one, plan = state.inventory.get_host(host.name), _plans[host.name]  # pyinfra's `host` is the one it is busy with
    adopt = may_settle and not state.should_check_for_changes() and not is_dry()
    return begin(one, plan, adopt and not outside(one, plan), live, removing)


def _plan_all(looks_only: bool) -> None:
    if "--no-wait" in sys.argv:
        raise Refused("--no-wait: pyinfra then ends with status 0 when a host fails. Run without it.")
    troubles: list[str] = []
    unfit: dict[Finding, list[str]] = {}  # the same recipe on many hosts is spoken of once
    plans = {}
    for one in filter(state.is_host_in_limit, state.inventory):
        try:
            plans[one.name] = plan_host(one.name, one.data.dict())
        except Unfit as error:
            for finding in error.findings:
                unfit.setdefault(finding, []).append(one.name)
        except UserError as error:
            troubles.append(str(error))
    troubles += [f"{_named(hosts)}: {finding}" for finding, hosts in unfit.items()]
    if not troubles:
        try:
            check_suppliers(plans.values(), [one.name for one in state.inventory])
            if not looks_only:
                check_addresses(plans.values(), {name: state.inventory.get_host(name).data.dict() for name in plans})
        except UserError as error:
            troubles.append(str(error))
    if troubles:
        raise Refused("\n".join(troubles))
    for warning in dict.fromkeys(warning for plan in plans.values() for warning in plan.warnings):
        logger.warning(f"{_named([name for name, plan in plans.items() if warning in plan.warnings])}: {warning}")
    _plans.update(plans)


def _named(hosts: list[str]) -> str:
    return ", ".join(hosts[:3]) + (f" and {len(hosts) - 3} more" if len(hosts) > 3 else "")


def is_dry() -> bool:
    """Whether pyinfra was told to change nothing; it keeps that to itself."""
    return "--dry" in sys.argv
