"""``sparkfleet patches``: the SM121 patch set in any site-packages directory, ours or not."""

import json
import shlex
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sparkfleet.agent.errors import HostError
from sparkfleet.agent.patching import PatchSet, Report, Row, apply, revert, status
from sparkfleet.agent.patching.shapes import BLOCKED
from sparkfleet.cli.errors import explained
from sparkfleet.errors import UserError
from sparkfleet.patchset import for_directory, for_engine


def _options(function: Callable[..., None]) -> Callable[..., None]:
    directory = click.Path(exists=True, file_okay=False, path_type=Path)
    interpreter = click.Path(exists=True, dir_okay=False, path_type=Path)
    for option in (
        click.option("--json", "as_json", is_flag=True, help="For machines: one object."),
        click.option("--python", type=interpreter, help="Runs behaviour probes; by default the directory's own."),
        click.option("--with", "also", multiple=True, metavar="ID", help="With --auto: an optional patch as well."),
        click.option("--site-packages", "site", type=directory, required=True, help="The directory that holds vllm."),
        click.option("--auto", is_flag=True, help="What is required for the versions that are installed."),
        click.option("--engine", metavar="NAME", help="The patch set of an engine of the catalog."),
    ):
        function = option(function)
    return function


@click.group()
def command() -> None:
    """State of the SM121 patch set in any site-packages directory; apply it, take it back.

    Exit status: 0 as it should be, 1 not, 2 bad input.
    """


@command.command("status")
@_options
@click.option("--probe", is_flag=True, help="Try the behaviour probes too (seconds).")
@explained
def status_command(
    engine: str | None,
    auto: bool,
    site: Path,
    also: tuple[str, ...],
    python: Path | None,
    as_json: bool,
    probe: bool,
) -> None:
    """Show the state of every patch. Writes nothing."""
    wanted = _set(engine, auto, site, also)
    to_type = _to_type("apply", engine, site, also)
    report = _run(lambda: status(site, wanted, python=python, probe=probe), as_json)
    _answer(report, as_json, report.converged, _end(report, to_type))


@command.command("apply")
@_options
@explained
def apply_command(
    engine: str | None, auto: bool, site: Path, also: tuple[str, ...], python: Path | None, as_json: bool
) -> None:
    """Bring the directory to exactly the wanted patches, all of them or none."""
    wanted = _set(engine, auto, site, also)
    to_type = _to_type("apply", engine, site, also)
    report = _run(lambda: apply(site, wanted, python=python), as_json)
    _answer(report, as_json, report.converged, _end(report, to_type))


@command.command("revert")
@_options
@explained
def revert_command(
    engine: str | None, auto: bool, site: Path, also: tuple[str, ...], python: Path | None, as_json: bool
) -> None:
    """Give back every byte that was shipped."""
    wanted = _set(engine, auto, site, also)
    report = _run(lambda: revert(site, wanted), as_json)
    clean = _clean(report)
    to_type = _to_type("revert", engine, site, also)
    _answer(report, as_json, clean, "As it was shipped." if clean else f"Not all is as it was shipped: {to_type}")


def _set(engine: str | None, auto: bool, site: Path, also: tuple[str, ...]) -> PatchSet:
    if bool(engine) == auto:
        raise UserError("give either --engine NAME or --auto.")
    if engine and also:
        raise UserError(f"--with goes with --auto; the patches of engine {engine} are in its file.")
    return for_engine(engine, site) if engine else for_directory(site, also)


def _clean(report: Report) -> bool:
    return not report.interrupted and all(row.state != "applied" or not row.target for row in report.rows)


def _to_type(verb: str, engine: str | None, site: Path, also: Iterable[str]) -> str:
    chosen = ["--engine", engine] if engine else ["--auto", *(word for one in also for word in ("--with", one))]
    return shlex.join(["sparkfleet", "patches", verb, *chosen, "--site-packages", str(site)])


def _run(run: Callable[[], Report], as_json: bool) -> Report:
    try:
        return run()
    except HostError as error:
        click.echo(json.dumps({"error": str(error)}) if as_json else f"Error: {error}", err=not as_json)
        sys.exit(1)


def _answer(report: Report, as_json: bool, good: bool, end: str) -> None:
    if as_json:
        click.echo(json.dumps(_plain(report), indent=1))
    else:
        _print(report)
        click.echo(end)
    sys.exit(0 if good else 1)


def _plain(report: Report) -> dict[str, Any]:
    return {**asdict(report), "converged": report.converged}


def _print(report: Report) -> None:
    told = [row for row in report.rows if not _beside_the_point(row)]
    if told:
        Console(highlight=False).print(_table(told))
        click.echo()
    # Plain lines from here on: a path or a link that is broken at the edge of a screen cannot be copied.
    for row in told:
        lines = [row.target or row.distribution, row.link if row.wanted or _edited_unasked(row) else ""]
        for at, line in enumerate(line for line in lines if line):
            click.echo(f"{'' if at else row.patch:5}{line}")
    absent = [row for row in report.rows if _beside_the_point(row)]
    for what, rows in (
        ("not in this release", [row for row in absent if not _not_installed(row)]),
        ("for what is not installed", [row for row in absent if _not_installed(row)]),
    ):
        if rows:
            click.echo(f"{what}: {', '.join(_names(rows))}")
    for probe in report.probes:
        click.echo(f"probe of {probe.patch}: {probe.outcome} {probe.detail}".rstrip())
    for path in report.changed:
        click.echo(f"written: {path}")


def _table(rows: Iterable[Row]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("patch", "wanted", "state"):
        table.add_column(name, no_wrap=True)
    table.add_column("why", overflow="fold")
    for row in rows:
        wanted = "yes" if row.wanted else "optional" if row.kind == "optional" else "no"
        # Text, not strings: a reason may hold square brackets, which rich would take for markup.
        cells = (Text(cell) for cell in (row.patch, wanted, row.state, row.reason))
        table.add_row(*cells, style="" if row.wanted else "dim")
    return table


def _beside_the_point(row: Row) -> bool:
    """Whether one word says all about it. A refused patch that somebody asks for is owed its reason."""
    return row.state == "not-applicable" and not (row.wanted and row.kind == "refused")


def _not_installed(row: Row) -> bool:
    return row.reason.endswith(" is not installed")


def _edited_unasked(row: Row) -> bool:
    return row.state == "applied" and not row.wanted and bool(row.target)


def _end(report: Report, to_type: str) -> str:
    """What is not as it should be, and what to type. By hand first: apply does nothing while that is not done."""
    if report.converged:
        return "As it should be."
    open_ = [row for row in report.rows if row.wanted and row.state == "pristine"]
    by_hand = [row for row in report.rows if row.wanted and row.state in BLOCKED]
    by_hand += [row for row in open_ if not row.target]
    missing = _names(row for row in open_ if row.target)
    unasked = _names(row for row in report.rows if _edited_unasked(row))
    failed = [probe.patch for probe in report.probes if probe.outcome == "failed"]
    said = []
    if failed:
        undone = "" if report.changed else "; nothing was changed"
        said.append(f"{_list(failed)}: the probe failed, see its line{undone}")
    if report.interrupted:
        said.append("a change was cut off here, which the next apply settles first")
    if missing:
        said.append(f"{_are(missing)} missing")
    if unasked:
        said.append(f"{_are(unasked)} applied and not wanted")
    if by_hand:
        said.append(f"do by hand first what the table says of {_list(_names(by_hand))}")
    text = "; ".join(said)
    again = not failed or report.interrupted or unasked
    return f"{text[0].upper()}{text[1:]}{f': {to_type}' if again else '.'}"


def _names(rows: Iterable[Row]) -> list[str]:
    return list(dict.fromkeys(row.patch for row in rows))


def _list(names: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _are(names: list[str]) -> str:
    return f"{_list(names)} {'is' if len(names) == 1 else 'are'}"
