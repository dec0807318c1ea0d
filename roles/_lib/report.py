"""What a person sees when a run has ended: what became of each host, and what the fleet serves."""

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path

from roles._lib.facts import Run, all_runs, author
from roles._lib.unreached import why_unreached
from sparkfleet.changes import Change
from sparkfleet.errors import UserError
from sparkfleet.plan import address
from sparkfleet.status.fleet import View, fleet_status, parity
from sparkfleet.status.shapes import FleetStatus


def outcome(names: list[str]) -> None:
    """One line a host: ready, blocked, failed or unreachable, and why."""
    width = max(map(len, names), default=0)
    _tell(names, [f"    {'':{width}}  {one.what}. {one.remedy}." for one in parity(_views(names))])


def _tell(names: list[str], more: Sequence[str] = ()) -> None:
    width = max(map(len, names), default=0)
    lines = [f"    {name:{width}}  {_outcome(name, all_runs().get(name))}" for name in names]
    if lines:
        print("\n--> sparkfleet:", *lines, *more, sep="\n", file=sys.stderr)


def _outcome(name: str, run: Run | None) -> str:
    if run is None:
        return f"not reached, nothing was changed. {why_unreached(name)}"
    if run.failed:
        before = f" ({_things(run.done)} changed before)" if run.done else ""
        return f"failed at {run.failed}{before}{_why(run)}"
    if run.blocked:
        return f"blocked, nothing was changed. {run.blocked.splitlines()[0]}"
    if pending := run.pending():
        return f"{_things(pending)} to change"
    return f"ready, {_things(run.done)} changed" if run.done else "ready, nothing to change"


def _why(run: Run) -> str:
    """The reason in one line; what more was said of it stands further up."""
    first, *more = run.why.splitlines() or [""]
    if not first:
        return ", see above"
    return f": {first}" + (f" ({len(more)} more line{'s' * (len(more) > 1)} above)" if more else "")


def troubles(names: list[str]) -> None:
    """A line for each host that failed, was blocked or not reached, and why; nothing where there is none.

    It comes after all else: the last that is read must not be that all is well.
    """
    sys.stdout.flush()
    runs = {name: all_runs().get(name) for name in names}
    _tell([name for name, run in runs.items() if run is None or run.failed or run.refused])


def _things(changes: Sequence[Change]) -> str:
    return "1 thing" if len(changes) == 1 else f"{len(changes)} things"


@cache
def status(page: str | None = None) -> Callable[[list[str]], None]:
    """What is to be told at the end of ``tasks/status.py``: tables for people, with ``--json`` one document, and a
    ``page`` of HTML where that path says.
    """
    print_document = document_printer()

    def tell(names: list[str]) -> None:
        seen = document(names)
        if print_document:
            print_document(asdict(seen))
        else:
            _show(seen)
        if page:
            _write(seen, Path(page))

    return tell


def document_printer() -> Callable[[object], None] | None:
    """With ``--json`` what prints a run's document; None without.

    pyinfra prints a document of its own when it ends; there is to be one on standard output, so its own goes nowhere.
    All that it says of a run that changes nothing is in ours.
    """
    if "--json" not in sys.argv:
        return None
    ours = sys.stdout
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    return lambda content: print(json.dumps(content, indent=2, ensure_ascii=False), file=ours, flush=True)


def document(names: list[str]) -> FleetStatus:
    """All that is known of the hosts ``names``."""
    unreached = {name: f"{why_unreached(name)}." for name in names if name not in all_runs()}
    return fleet_status(_views(names), time.time(), author().revision, unreached)


def table(names: list[str]) -> None:
    """The fleet: a line for each host and each recipe, and what there is to read; at last, what went wrong."""
    _show(document(names), asked=False)
    troubles(names)


def _show(seen: FleetStatus, asked: bool = True) -> None:
    from rich.console import Console  # 40 ms that a deploy does not need

    from sparkfleet.status.text import show

    show(seen, Console(highlight=False, stderr="--json" in sys.argv), asked)


def _write(seen: FleetStatus, path: Path) -> None:
    from sparkfleet.status.page import write

    try:
        write(seen, path)
        print(f"\n{path}: the same as a page", file=sys.stderr)
    except UserError as error:
        print(f"\n{error}", file=sys.stderr)


def _views(names: list[str]) -> dict[str, View | None]:
    return {name: _view(all_runs().get(name)) for name in names}


def _view(run: Run | None) -> View | None:
    if run is None:
        return None
    where = address(run.host.name, run.host.data.dict())
    return View(run.plan, run.wanted, run.seen, run.trouble, tuple(run.host.groups), where)
