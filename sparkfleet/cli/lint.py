"""``sparkfleet lint``: recipes checked against what their engines accept, without a host."""

import json
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

import click

from sparkfleet.catalog.recipes import KnownBad, entry, path_of, paths
from sparkfleet.cli.errors import explained
from sparkfleet.errors import UserError
from sparkfleet.lint.check import check_file
from sparkfleet.lint.findings import Finding


@click.command()
@click.argument("wanted", metavar="[RECIPE|FILE]...", nargs=-1)
@click.option("--engine", metavar="ENGINE", help="Only on this engine, even if the recipe does not name it.")
@click.option("--json", "as_json", is_flag=True, help="For machines: one object.")
@explained
def command(wanted: tuple[str, ...], engine: str | None, as_json: bool) -> None:
    """Check recipes, by name or file, against what each of their engines accepts; by default all of the catalog.

    Exit status: 0 without errors (there may be warnings), 1 with errors, 2 bad input.
    """
    files, skipped = [_file(one) for one in wanted], 0
    if not wanted:
        files = [path for path in paths().values() if not _is_known_bad(path) and (not engine or _is_for(path, engine))]
        skipped = len(paths()) - len(files)
    findings = [finding for path in dict.fromkeys(files) for finding in check_file(path, engine)]
    if as_json:
        click.echo(json.dumps(_summary(findings, len(files)), indent=1))
    else:
        _print(findings, len(files), skipped)
    sys.exit(1 if any(one.counts for one in findings) else 0)


def _file(wanted: str) -> Path:
    """The file that a word stands for. Raises UserError when it stands for none."""
    path = Path(wanted)
    if path.suffix == ".yaml" or "/" in wanted:
        if not path.is_file():
            raise UserError(f"{wanted}: there is no such file.")
        return path
    return path_of(wanted)


def _is_known_bad(path: Path) -> bool:
    try:
        return isinstance(entry(path), KnownBad)
    except UserError:
        return False


def _is_for(path: Path, engine: str) -> bool:
    try:
        found = entry(path)
    except UserError:
        return True  # what cannot be read is said whatever the engine
    return isinstance(found, KnownBad) or engine in found.engine_names


def _summary(findings: Sequence[Finding], files: int) -> dict[str, object]:
    return {
        "recipes": files,
        "errors": sum(one.counts for one in findings),
        "warnings": sum(one.severity == "warning" and not one.waived for one in findings),
        "waived": sum(bool(one.waived) for one in findings),
        "findings": [asdict(one) for one in findings],
    }


def _print(findings: Sequence[Finding], files: int, skipped: int) -> None:
    width = min(shutil.get_terminal_size((80, 24)).columns, 100)
    for one in findings:
        click.echo("\n".join(_lines(one, width)))
    summary = _summary(findings, files)
    parts = [_times(summary[name], name.removesuffix("s")) for name in ("errors", "warnings")]
    if summary["waived"]:
        parts.append(f"{summary['waived']} waived")
    more = f" ({skipped} more are known not to work, or are for other engines)" if skipped else ""
    click.echo(textwrap.fill(f"{', '.join(parts)} in {_times(files, 'recipe')}{more}.", width))


def _lines(one: Finding, width: int) -> Iterable[str]:
    """A finding for people: where and what it is, then what, why and remedy, each with its own indent."""
    kind = "waived" if one.waived else one.severity
    head = click.style(f"{kind}", fg={"error": "red", "warning": "yellow", "waived": "cyan"}[kind], bold=True)
    yield f"{one.place}: {head}: {one.rule}"
    if one.engines:
        yield from _wrapped("on", ", ".join(one.engines), width)
    yield from _wrapped("what", one.what, width)
    if one.waived:
        yield from _wrapped("waived", one.waived, width)
    else:
        yield from _wrapped("why", one.why, width)
        yield from _wrapped("remedy", one.remedy, width)
    yield ""


def _wrapped(label: str, text: str, width: int) -> list[str]:
    first = f"  {label:6}  "
    return textwrap.wrap(text, width, initial_indent=first, subsequent_indent=" " * len(first), break_on_hyphens=False)


def _times(number: object, thing: str) -> str:
    return f"{number} {thing}" + ("" if number == 1 else "s")
