"""What a person sees when a run has ended: what became of each host, and what the fleet serves."""

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any

from roles._lib.facts import Run, all_runs, author
from sparkfleet import fleet
from sparkfleet.agent.shapes import Finding, UnitState, Verified
from sparkfleet.changes import Change
from sparkfleet.plan import RecipePlan

if TYPE_CHECKING:
    from rich.console import Console

#: Version of the document that ``status`` prints for machines.
SCHEMA = 1

_WORDS = {"stop": "stops", "warn": "warning", "info": "note"}


def outcome(names: list[str]) -> None:
    """One line a host: ready, blocked, failed or unreachable, and why."""
    width = max(map(len, names), default=0)
    lines = [f"    {name:{width}}  {_outcome(all_runs().get(name))}" for name in names]
    lines += [f"    {'':{width}}  {one.what}. {one.remedy}." for one in _parity(names)]
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


@cache
def status() -> Callable[[list[str]], None]:
    """What is to be told at the end of ``tasks/status.py``: tables for people, with ``--json`` one document.

    With ``--json`` pyinfra prints a document of its own when it ends; there is to be one on standard output, so its
    own goes nowhere. All that it says of a run that changes nothing is in ours.
    """
    if "--json" not in sys.argv:
        return table
    ours = sys.stdout
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    return lambda names: print(json.dumps(document(names), indent=2, ensure_ascii=False), file=ours, flush=True)


def document(names: list[str]) -> dict[str, Any]:
    """All that is known of the hosts ``names``, for machines."""
    return {
        "schema": SCHEMA,
        "sparkfleet": author().revision,
        "hosts": {name: _host(all_runs().get(name)) for name in names},
        "fleet": [asdict(one) for one in _parity(names)],
    }


def _host(run: Run | None) -> dict[str, Any]:
    if run is None:
        return {"verdict": "not reached"}
    seen = run.seen
    rows = _rows(run) if run.plan.recipes and not run.blocked else []
    return {
        "verdict": fleet.verdict(seen, run.trouble),
        "trouble": run.trouble,
        "findings": [asdict(one) for one in seen.findings] if seen else [],
        "recipes": [
            {"recipe": recipe, "engine": engine, "state": state, "tokens_per_second": float(speed) if speed else None}
            for recipe, engine, state, speed in rows
        ],
        "to_change": [str(one) for one in run.pending()],
        "releases": [asdict(one) for one in seen.releases] if seen else [],
        "machine": asdict(seen.machine) if seen else None,
    }


def _parity(names: list[str]) -> tuple[Finding, ...]:
    runs = {name: run for name in names if (run := all_runs().get(name))}
    engines: dict[str, dict[str, str]] = {}
    for name, run in runs.items():
        for one in run.plan.recipes:
            engines.setdefault(one.name, {})[name] = one.release
    return fleet.parity({name: run.seen for name, run in runs.items() if run.seen}, engines)


def table(names: list[str]) -> None:
    """The fleet: a line for each host and each recipe, what preflight found, what was asked last and answered."""
    from rich.console import Console  # 40 ms that a deploy does not need
    from rich.table import Table

    console = Console(highlight=False, stderr="--json" in sys.argv)
    machines = Table("host", "verdict", "driver", "kernel", "DGX OS", "memory", box=None, header_style="bold")
    lines = Table("host", "recipe", "engine", "state", "tok/s", box=None, header_style="bold")
    answers = []
    for name in names:
        run = all_runs().get(name)
        machines.add_row(name, *_machine(run))
        for row in _rows(run) if run else [("", "", "not reached", "")]:
            lines.add_row(name, *row)
        answers += [outcome for outcome in (run.seen.verified if run and run.seen else ()) if outcome.answer]
    for one in (machines, lines):
        console.print()
        console.print(one)
    _findings(names, console)
    for said in answers[:1]:
        console.print(f"\n  asked     {said.question}\n  answered  {said.answer}", markup=False)


def _machine(run: Run | None) -> tuple[str, str, str, str, str]:
    if run is None or run.seen is None:
        return ("blocked" if run else "not reached", "", "", "", "")
    machine = run.seen.machine
    total = machine.memory.total
    return (
        fleet.verdict(run.seen, run.trouble),
        machine.gpu.driver or "unknown",
        machine.kernel.running,
        machine.release.ota or "unknown",
        "unknown" if total is None else f"{total / 1024**3:.1f} GiB",
    )


def _findings(names: list[str], console: "Console") -> None:
    found = [(name, one) for name in names if (run := all_runs().get(name)) and run.seen for one in run.seen.findings]
    found += [("fleet", one) for one in _parity(names)]
    troubles = [(name, run.trouble) for name in names if (run := all_runs().get(name)) and run.trouble]
    for name, text in troubles:
        console.print(f"\n  {name}: stops: {text}", markup=False, soft_wrap=True)
    for name, one in found:
        line = f"\n  {name}: {_WORDS[one.severity]}: {one.what}.\n    {one.remedy}."
        console.print(line, markup=False, soft_wrap=True)


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
    if state.active != "active" and not one.running:
        return one.name, engine, "waits: no room beside the others", ""
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
