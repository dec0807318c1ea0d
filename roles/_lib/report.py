"""What a person sees when a run has ended: what became of each host, and what the fleet serves."""

import sys
from collections.abc import Sequence

from roles._lib.facts import Run, all_runs
from sparkfleet.agent.shapes import UnitState, Verified
from sparkfleet.changes import Change
from sparkfleet.plan import RecipePlan


def outcome(names: list[str]) -> None:
    """One line a host: ready, blocked, failed or unreachable, and why."""
    width = max(map(len, names), default=0)
    lines = [f"    {name:{width}}  {_outcome(all_runs().get(name))}" for name in names]
    print("\n--> sparkfleet:", *lines, sep="\n", file=sys.stderr)


def _outcome(run: Run | None) -> str:
    if run is None:
        return "not reached, nothing was changed: see above why, and check address, user and key"
    if run.failed:
        return f"failed at {run.failed}, see above" + (f" ({_things(run.done)} changed before)" if run.done else "")
    if run.blocked:
        return f"blocked, nothing was changed. {run.blocked.splitlines()[0]}"
    if pending := run.pending():
        return f"{_things(pending)} to change"
    return f"ready, {_things(run.done)} changed" if run.done else "ready, nothing to change"


def _things(changes: Sequence[Change]) -> str:
    return "1 thing" if len(changes) == 1 else f"{len(changes)} things"


def table(names: list[str]) -> None:
    """The fleet: a line for each recipe of each host, then what was asked last and what came back."""
    from rich.console import Console  # 40 ms that a deploy does not need
    from rich.table import Table

    console = Console(highlight=False, stderr="--json" in sys.argv)
    lines = Table("host", "recipe", "engine", "state", "tok/s", box=None, header_style="bold")
    answers = []
    for name in names:
        run = all_runs().get(name)
        for row in _rows(run) if run else [("", "", "not reached", "")]:
            lines.add_row(name, *row)
        answers += [outcome for outcome in (run.seen.verified if run and run.seen else ()) if outcome.answer]
    console.print()
    console.print(lines)
    for said in answers[:1]:
        console.print(f"\n  asked     {said.question}\n  answered  {said.answer}", markup=False)


def _rows(run: Run) -> list[tuple[str, str, str, str]]:
    if run.blocked or not run.seen:
        return [("", "", "blocked: " + run.blocked.splitlines()[0], "")]
    if not run.plan.recipes:
        return [("(none)", "", "ready", "")]
    states = {state.name: state for state in run.seen.units}
    outcomes = {outcome.recipe: outcome for outcome in run.seen.verified}
    return [_row(run, one, states.get(one.unit), outcomes.get(one.name)) for one in run.plan.recipes]


def _row(run: Run, one: RecipePlan, state: UnitState | None, verified: Verified | None) -> tuple[str, str, str, str]:
    engine = next(release.engine for release in run.plan.releases if release.name == one.release)
    if state is None or state.load == "not-found":
        return one.name, engine, "not deployed", ""
    if state.active != "active":
        return one.name, engine, f"{state.active} ({state.result})", ""
    if verified is None or verified.invocation != state.invocation:
        return one.name, engine, "serving, not verified", ""
    return (
        one.name,
        engine,
        "serving" if verified.passed else "serving, failed its verification",
        f"{verified.tokens_per_second:.1f}",
    )
