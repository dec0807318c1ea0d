"""The beginning and the end of a run: plans of all hosts before any is asked, and what became of each."""

import atexit
import sys

from pyinfra import host, state
from pyinfra.api.exceptions import PyinfraError

from roles._lib.facts import Run, all_runs, begin
from sparkfleet.errors import UserError
from sparkfleet.plan import HostPlan, plan_host

_plans: dict[str, HostPlan] = {}


def observed() -> Run:
    """This host, observed; the first call of a run plans every host of the inventory.

    Raises pyinfra's error, which ends the run for all hosts, when the data of any cannot be planned: nothing has been
    asked or changed anywhere then.
    """
    if not _plans:
        _plan_all()
    return begin(host, _plans[host.name], adopt=not state.should_check_for_changes() and not _is_dry())


def _plan_all() -> None:
    troubles = []
    for one in state.inventory:
        try:
            _plans[one.name] = plan_host(one.name, one.data.dict())
        except UserError as error:
            troubles.append(str(error))
    if troubles:
        raise PyinfraError("\n".join(troubles))
    atexit.register(_summarise)


def _is_dry() -> bool:
    return "--dry" in sys.argv  # pyinfra's command line; it keeps this to itself


def _summarise() -> None:
    if _is_dry() or (not state.is_executing and not any(run.done or run.blocked for run in all_runs().values())):
        return
    names = [one.name for one in state.inventory if state.is_host_in_limit(one)]
    width = max(map(len, names), default=0)
    print("\n--> sparkfleet:", file=sys.stderr)
    for name in names:
        print(f"    {name:{width}}  {_outcome(all_runs().get(name))}", file=sys.stderr)


def _outcome(run: Run | None) -> str:
    if run is None:
        return "unreachable: nothing was changed"
    if run.blocked:
        return f"blocked, nothing was changed: {run.blocked.splitlines()[0]}"
    if run.failed:
        return f"failed at {run.failed}: see above"
    if run.pending():
        return f"not finished: {len(run.pending())} things still differ"
    return f"ready, {len(run.done)} things changed" if run.done else "ready, nothing to change"
