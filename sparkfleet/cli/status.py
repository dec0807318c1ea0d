"""``sparkfleet status INVENTORY``: run ``tasks/status.py`` and show what it says, once or again and again."""

import json
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console

from sparkfleet.agent.wire import WireError, decode
from sparkfleet.cli.errors import explained
from sparkfleet.errors import UserError
from sparkfleet.status.page import write
from sparkfleet.status.shapes import FleetStatus
from sparkfleet.status.text import show

TASK = Path("tasks/status.py")


@click.command()
@click.argument("inventory", type=click.Path(exists=True, dir_okay=False))
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
@click.option("--watch", type=click.IntRange(1, 86_400), metavar="SECONDS", help="Look again so long after each look.")
@click.option("--json", "as_json", is_flag=True, help="For machines: one document a line.")
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Write the report to this file, too.")
@explained
def command(inventory: str, options: tuple[str, ...], watch: int | None, as_json: bool, html: Path | None) -> None:
    """Show the hosts of INVENTORY: what they serve, and what is not as it should be. Nothing is changed.

    OPTIONS after `--` go to pyinfra: `sparkfleet status inventory/sparks.py -- --limit spark-01`. The exit status is 0
    if every host could be asked. Watching ends with Ctrl-C; on a terminal each look replaces the last, elsewhere it
    follows it.
    """
    first = True
    try:
        while True:
            code = _once(inventory, options, as_json, html, watch is not None, first)
            if watch is None:
                sys.exit(code)
            first = False
            time.sleep(watch)
    except KeyboardInterrupt:
        sys.exit(0 if watch else 130)


def _once(inventory: str, options: tuple[str, ...], as_json: bool, html: Path | None, again: bool, first: bool) -> int:
    """One look, shown; the exit status of pyinfra. Raises UserError when the first one has no document."""
    try:
        code, document = _look(inventory, options)
    except UserError as error:
        if first:
            raise
        click.echo(str(error), err=True)  # a fleet that is away for a while, as when its only host reboots
        return 2
    _tell(document, as_json, again)
    if html:
        write(document, html)  # last: a page that cannot be written takes nothing from what was seen
    return code


def _look(inventory: str, options: tuple[str, ...]) -> tuple[int, FleetStatus]:
    """One run of the task: its exit status and its document. Raises UserError with what pyinfra says without one."""
    if not TASK.is_file():
        raise UserError(f"{TASK} is not here: change to the directory that holds deploy.py, and run it there.")
    arguments = ("--json", "-y", inventory, str(TASK), *options)
    done = subprocess.run((sys.executable, "-m", "pyinfra", *arguments), capture_output=True, text=True, check=False)
    try:
        return done.returncode, decode(FleetStatus, done.stdout)
    except WireError:
        said = [line.strip() for line in done.stderr.splitlines() if not line.endswith("...")]
        told = "\n".join(line.removeprefix("--> ") for line in said if line)
        raise UserError(told or f"pyinfra ended with status {done.returncode} and said nothing.") from None


def _tell(document: FleetStatus, as_json: bool, again: bool) -> None:
    if as_json:
        click.echo(json.dumps(asdict(document), ensure_ascii=False))
        return
    console = Console(highlight=False)
    if again and console.is_terminal:
        console.clear()
    show(document, console)
