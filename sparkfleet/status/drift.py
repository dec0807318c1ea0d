"""Why a host is not as it should be: somebody changed it there, it was taken back, the last deploy was cut off, or what
is wanted has changed here. Pure.
"""

from collections.abc import Iterator
from datetime import datetime, timezone

from sparkfleet.agent.shapes import Observed, TextFile, Unit
from sparkfleet.changes import FOLLOWS, RETIRED, Change, changes
from sparkfleet.desired import Desired
from sparkfleet.status.shapes import Drift

#: Seconds: a file of ours is written shortly before the receipt that speaks of it, sometimes shortly after.
_CLOSE = 60.0

_BACK = "the host was taken back to what served before, and a deploy goes forward again"

#: What a deploy does, as a sentence goes on.
_DOES = {
    "add": "add it",
    "build": "build it",
    "build again": "build it again",
    "complete": "complete it",
    "create": "create it",
    "disable": "disable it",
    "enable": "enable it",
    "enable and start": "enable and start it",
    "lay down": "lay it down",
    "reload": "have systemd read it again",
    "restart": "restart it",
    "set right": "set it right",
    "start": "start it",
    "stop and remove": "stop and remove it",
    "write": "write it",
}


def drift(wanted: Desired, seen: Observed) -> tuple[Drift, ...]:
    """Everything that differs on a host that was deployed to; nothing on one that never was."""
    if seen.receipt is None:
        return ()
    differences = (one for one in changes(wanted, seen) if one.found not in FOLLOWS)
    return (*_live(wanted, seen), *(_drift(one, wanted, seen) for one in differences))


def moment(at: float) -> str:
    """A time as a person reads it in any zone."""
    try:
        return f"{datetime.fromtimestamp(at, timezone.utc):%Y-%m-%d %H:%M} UTC"
    except (ValueError, OverflowError, OSError):  # no clock of ours can have said that
        return "at an impossible time"


def deployed(seen: Observed) -> str:
    """Who deployed to a host last, and when; empty for nobody."""
    receipt = seen.receipt
    return f"{receipt.user}, {moment(receipt.changed_at)}, revision {receipt.revision}" if receipt else ""


def _live(wanted: Desired, seen: Observed) -> Iterator[Drift]:
    states = {state.name: state for state in seen.units}
    units = {unit.recipe: unit.name for unit in wanted.units}
    for one in seen.live:
        unit = units.get(one.recipe, one.recipe)
        if one.difference and unit in states and states[unit].active == "active":
            remedy = (
                f"verification fails on it: look for a drop-in with `systemctl cat {unit}`, then restart it with "
                f"`sudo systemctl restart {unit}`"
            )
            yield Drift("service", unit, one.difference, remedy)
        elif one.difference:
            yield Drift("service", unit, one.difference, "a deploy would stop at it: end that process first")


def _drift(change: Change, wanted: Desired, seen: Observed) -> Drift:
    does = _DOES.get(change.action, change.action)
    remedy = "a deploy would stop at preflight first" if seen.blocked else f"a deploy would {does}"
    return Drift(change.role, change.thing, _cause(change, wanted, seen), remedy)


def _cause(change: Change, wanted: Desired, seen: Observed) -> str:
    path = seen.paths.get(change.thing)
    ours = _is_as_laid_down(change, wanted, seen)
    if change.found == "differs" and path:
        at = seen.receipt.changed_at if seen.receipt else 0.0
        if ours or path.mtime > at + _CLOSE:
            return f"edited on the host, {moment(path.mtime)}"
        return f"differs: {_newer(change, wanted, seen)}"
    if change.found == "missing" and ours:
        return "missing: it was removed on the host"
    if change.found in ("missing", "runs from other settings") and ours is False:
        return f"{change.found}: {_newer(change, wanted, seen)}"
    if change.found == RETIRED and _is_taken_back(change, wanted, seen):
        return f"{change.found}: {_BACK}"
    return change.found


def _newer(change: Change, wanted: Desired, seen: Observed) -> str:
    """Why what is wanted is not what was laid down."""
    if _is_taken_back(change, wanted, seen):
        return _BACK
    if _came_to_its_end(seen):
        return f"what is wanted has changed since {deployed(seen)}"
    if change.found == "missing":
        return f"the last deploy did not get to it, or it is wanted only since then ({deployed(seen)})"
    return f"what is wanted has changed since {deployed(seen)}, or that deploy did not get to it"


def _is_taken_back(change: Change, wanted: Desired, seen: Observed) -> bool:
    """Whether what is wanted is just what the host was taken back from."""
    newest = next((one for one in seen.served[-1:] if one.units == seen.current), None)
    left = newest.left if newest else None
    if left is None:
        return False
    if change.found == RETIRED:
        return change.thing not in left
    told = [left.get(unit.name) == unit.digest for unit in wanted.units if _is_of(change, unit)]
    return bool(told) and all(told)


def _came_to_its_end(seen: Observed) -> bool:
    """Whether the last that was written down on the host is that all there was verified, as a deploy ends."""
    at = seen.receipt.changed_at if seen.receipt else 0.0
    return any(one.units == seen.current and at <= one.at + _CLOSE for one in seen.served[-1:])


def _is_as_laid_down(change: Change, wanted: Desired, seen: Observed) -> bool | None:
    """Whether what is wanted of a thing is what was last laid down on the host; None where nothing tells."""
    if change.role == "account":
        return True if seen.agent == wanted.agent and change.found == "missing" else None
    told = [seen.current.get(unit.name) == unit.digest for unit in wanted.units if _is_of(change, unit)]
    return all(told) if told else None


def _is_of(change: Change, unit: Unit) -> bool:
    if change.role == "service":
        return change.thing in (unit.name, *(file.path for file in unit.files if _counts(file)))
    return change.thing == f"release {unit.release.rpartition('/')[2]}"


def _counts(file: TextFile) -> bool:
    return file.starts  # others are not covered by the digest that a receipt has
