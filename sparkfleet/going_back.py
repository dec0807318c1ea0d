"""What a host can go back to, and which releases it can do without. Pure: from the observed state alone."""

from collections.abc import Collection

from sparkfleet.agent.shapes import Observed, ReleaseState, Served
from sparkfleet.errors import UserError


def target(seen: Observed, to: str | None) -> Served:
    """The served set to go back to: the newest that is not what is there now, or the newest with a release ``to``
    (its name, or enough of its beginning to know it).

    Raises UserError, naming those that there are.
    """
    others = [one for one in seen.served if one.units != seen.current]
    chosen = [one for one in others if to is None or any(name.startswith(to) for name in one.releases.values())]
    if to is not None and len({name for one in chosen for name in one.releases.values() if name.startswith(to)}) > 1:
        raise UserError(f"rollback_to {to!r}: several releases begin like that: {_releases(chosen)}.")
    if chosen:
        return chosen[-1]
    if to is None:
        raise UserError("there is nothing to go back to: nothing but what is there now was ever verified here.")
    known = _releases(others) or "none"
    raise UserError(f"rollback_to {to!r}: nothing of it was ever verified here; to go back to there is: {known}.")


def needless(seen: Observed, wanted: Collection[str], keep: int) -> tuple[ReleaseState, ...]:
    """The releases to remove: those that ``kept`` does not name.

    A release that is damaged or was never sealed is none to keep, unless it is in use or wanted.
    """
    needed = kept(seen, wanted, keep)
    return tuple(one for one in seen.releases if one.name not in needed)


def kept(seen: Observed, wanted: Collection[str], keep: int) -> dict[str, str]:
    """The releases to keep, and why each: in use, ``wanted``, the last good one, one of the newest ``keep`` others."""
    last_good = next((one for one in reversed(seen.served) if one.units != seen.current), None)
    before = set(last_good.releases.values()) if last_good else set()
    reasons = {one.name: _need(one, wanted, before) for one in seen.releases}
    others = [one for one in seen.releases if one.sealed and not reasons[one.name]]
    newest = sorted(others, key=lambda one: one.built, reverse=True)[:keep]
    why = "the newest other" if keep == 1 else f"one of the newest {keep} others"
    reasons.update({one.name: why for one in newest})
    return {name: reason for name, reason in reasons.items() if reason}


def _need(one: ReleaseState, wanted: Collection[str], before: Collection[str]) -> str:
    if one.users:
        return f"in use by {', '.join(one.users)}"
    if one.name in wanted:
        return "the inventory wants it"
    return "the last good one, to go back to" if one.name in before else ""


def _releases(sets: list[Served]) -> str:
    return ", ".join(sorted({name for one in sets for name in one.releases.values()}))
