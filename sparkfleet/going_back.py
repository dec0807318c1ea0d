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
    """The releases to remove: not in use, not ``wanted``, not the last good one, not one of the newest ``keep`` others.

    A release that is damaged or was never sealed is none to keep.
    """
    last_good = next((one for one in reversed(seen.served) if one.units != seen.current), None)
    needed = {*wanted, *(last_good.releases.values() if last_good else ())}
    free = [one for one in seen.releases if not one.users and one.name not in needed]
    whole = sorted((one for one in free if one.sealed), key=lambda one: one.built, reverse=True)
    kept = whole[:keep]
    return tuple(one for one in free if one not in kept)


def _releases(sets: list[Served]) -> str:
    return ", ".join(sorted({name for one in sets for name in one.releases.values()}))
