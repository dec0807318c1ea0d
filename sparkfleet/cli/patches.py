"""``sparkfleet patches``: the SM121 patch set in any site-packages directory, ours or not."""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sparkfleet.agent.errors import HostError
from sparkfleet.agent.patching import PatchSet, Report, apply, revert, status
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
    _answer(lambda: status(site, wanted, python=python, probe=probe), as_json, lambda report: report.converged)


@command.command("apply")
@_options
@explained
def apply_command(
    engine: str | None, auto: bool, site: Path, also: tuple[str, ...], python: Path | None, as_json: bool
) -> None:
    """Bring the directory to exactly the wanted patches, all of them or none."""
    wanted = _set(engine, auto, site, also)
    _answer(lambda: apply(site, wanted, python=python), as_json, lambda report: report.converged)


@command.command("revert")
@_options
@explained
def revert_command(
    engine: str | None, auto: bool, site: Path, also: tuple[str, ...], python: Path | None, as_json: bool
) -> None:
    """Give back every byte that was shipped."""
    wanted = _set(engine, auto, site, also)
    _answer(lambda: revert(site, wanted), as_json, _clean)


def _set(engine: str | None, auto: bool, site: Path, also: tuple[str, ...]) -> PatchSet:
    if bool(engine) == auto:
        raise UserError("give either --engine NAME or --auto.")
    if engine and also:
        raise UserError(f"--with goes with --auto; the patches of engine {engine} are in its file.")
    return for_engine(engine, site) if engine else for_directory(site, also)


def _clean(report: Report) -> bool:
    return not report.interrupted and all(row.state != "applied" or not row.target for row in report.rows)


def _answer(run: Callable[[], Report], as_json: bool, good: Callable[[Report], bool]) -> None:
    try:
        report = run()
    except HostError as error:
        click.echo(json.dumps({"error": str(error)}) if as_json else f"Error: {error}", err=not as_json)
        sys.exit(1)
    if as_json:
        click.echo(json.dumps(_plain(report), indent=1))
    else:
        _print(report)
    sys.exit(0 if good(report) else 1)


def _plain(report: Report) -> dict[str, Any]:
    return {**asdict(report), "converged": report.converged}


def _print(report: Report) -> None:
    console = Console()
    table = Table("patch", "target", "state", "why", "link", box=None, pad_edge=False)
    for row in report.rows:
        cells = (row.patch, row.target or row.distribution, row.state, row.reason, row.link)
        # Text, not strings: a reason may hold square brackets, which rich would take for markup.
        table.add_row(*(Text(cell) for cell in cells), style="" if row.wanted else "dim")
    console.print(table)
    for probe in report.probes:
        console.print(f"probe of {probe.patch}: {probe.outcome} {probe.detail}", markup=False)
    if any(probe.outcome == "failed" for probe in report.probes) and not report.changed:
        console.print("A patch does not do what it should (see its probe). Nothing was changed.", markup=False)
    for path in report.changed:
        console.print(f"written: {path}", markup=False)
    if report.interrupted:
        console.print("A change was cut off here: run apply or revert, which settle it first.", markup=False)
    console.print("As it should be." if report.converged else "Not as it should be.", markup=False)
