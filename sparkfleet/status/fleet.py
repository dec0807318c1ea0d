"""Observed states to a document. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sparkfleet import fleet
from sparkfleet.agent.shapes import Finding, Live, Observed, UnitState, Verified
from sparkfleet.changes import changes, retired
from sparkfleet.desired import Desired
from sparkfleet.plan import HostPlan, RecipePlan
from sparkfleet.status.drift import deployed, drift
from sparkfleet.status.shapes import SCHEMA, FleetStatus, HostStatus, RecipeStatus


@dataclass(frozen=True)
class View:
    """A host that was reached: what it should be, and what it is, or the ``trouble`` with asking it.

    ``groups``: the lists of the inventory that it is in; ``address``: where it was connected to.
    """

    plan: HostPlan
    wanted: Desired
    seen: Observed | None
    trouble: str = ""
    groups: tuple[str, ...] = ()
    address: str = ""


def fleet_status(
    views: Mapping[str, View | None], at: float, revision: str, unreached: Mapping[str, str] = {}
) -> FleetStatus:
    """All that is known of hosts by name; None stands for one that was not reached, ``unreached`` tells why."""
    hosts = {
        name: host_status(view, at) if view else HostStatus("not reached", unreached.get(name, ""))
        for name, view in views.items()
    }
    return FleetStatus(SCHEMA, revision, at, hosts, parity(views))


def parity(views: Mapping[str, View | None]) -> tuple[Finding, ...]:
    """How the hosts compare with each other."""
    engines: dict[str, dict[str, str]] = {}
    for name, view in views.items():
        for one in view.plan.recipes if view else ():
            engines.setdefault(one.name, {})[name] = one.release
    seen = {name: view.seen for name, view in views.items() if view and view.seen}
    groups = {name: view.groups for name, view in views.items() if view}
    addresses = {name: view.address for name, view in views.items() if view and view.address}
    return fleet.parity(seen, engines, groups, addresses)


def host_status(view: View, at: float) -> HostStatus:
    """One host at the time ``at`` of this machine's clock."""
    seen = view.seen
    if seen is None:
        return HostStatus(fleet.verdict(None, view.trouble), view.trouble)
    pending = () if seen.blocked or view.trouble else changes(view.wanted, seen)
    return HostStatus(
        verdict=fleet.verdict(seen, view.trouble),
        trouble=view.trouble,
        deployed=deployed(seen),
        findings=seen.findings,
        recipes=tuple(_recipes(view, seen, at + seen.machine.system.clock_skew)),
        drift=drift(view.wanted, seen),
        to_change=tuple(map(str, pending)),
        releases=seen.releases,
        machine=seen.machine,
    )


def _recipes(view: View, seen: Observed, now: float) -> Iterator[RecipeStatus]:
    units = {state.name: state for state in seen.units}
    live = {one.recipe: one for one in seen.live}
    verified = {one.recipe: one for one in seen.verified}
    for one in (*map(_planned, view.plan.recipes), *_left(view, seen)):
        yield _recipe(one, units.get(one.unit), live.get(one.name), verified.get(one.name), now)


@dataclass(frozen=True)
class _Row:
    """A recipe as far as the table is about it."""

    name: str
    engine: str
    unit: str
    running: bool


def _planned(one: RecipePlan) -> _Row:
    return _Row(one.name, one.engine, one.unit, one.running)


def _left(view: View, seen: Observed) -> Iterator[_Row]:
    """Units of ours on the host that no recipe wants any more: they may serve all the same, after a rollback say."""
    engines = {unit: one.name.rpartition("-")[0] or one.name for one in seen.releases for unit in one.users}
    for unit in retired(view.wanted, seen):
        name = unit.removeprefix("vllm-").removesuffix(".service")
        yield _Row(name, engines.get(unit, ""), unit, running=True)


def _recipe(
    one: _Row, unit: UnitState | None, live: Live | None, verified: Verified | None, now: float
) -> RecipeStatus:
    if unit is None or unit.load == "not-found":
        return RecipeStatus(one.name, one.engine, "not deployed", live.difference if live else "")
    live = live or Live(one.name)
    state, detail = _state(one, unit, live)
    if verified is None or unit.active != "active" or verified.invocation != unit.invocation:
        outcome = None
    else:
        outcome = verified
    return RecipeStatus(
        recipe=one.name,
        engine=one.engine,
        state=state,
        detail=detail,
        since=max(0.0, now - unit.started) if unit.started and unit.active == "active" else None,
        running=live.running,
        waiting=live.waiting,
        kv_use=live.kv_use,
        verified=max(0.0, now - outcome.at) if outcome else None,
        passed=outcome.passed if outcome else None,
        reason=outcome.reason if outcome else "",
        note="there is no room for it beside the others" if state == "waits" else outcome.note if outcome else "",
        tokens_per_second=outcome.tokens_per_second or None if outcome else None,
        question=outcome.question if outcome else "",
        answer=outcome.answer if outcome else "",
    )


def _state(one: _Row, unit: UnitState, live: Live) -> tuple[str, str]:
    """In a word, and what else there is to say."""
    if unit.active == "active":
        if live.silence:
            return "not answering", f"{live.silence}; see `journalctl -u {unit.name}`, then restart it"
        return ("differs", "") if live.difference else ("serving", "")
    if live.difference:
        return "by hand", ""
    if unit.active == "activating":
        again = unit.sub == "auto-restart"
        return ("restarting", f"its last start ended with {unit.result}") if again else ("starting", "")
    if unit.active == "failed":
        return "failed", f"{unit.result}; see `journalctl -u {unit.name}`"
    if unit.active == "deactivating":
        return "stopping", ""
    return ("stopped", "") if one.running else ("waits", "")
