"""``sparkfleet lab``: throw-away Sparks on this machine."""

import json
import os
import shlex
import socket
import time
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from lab import scenarios, supplies
from lab.hosts import DEFAULT, Lab
from lab.state import Host
from sparkfleet.errors import UserError


class _Group(click.Group):
    """Says a user's error, or that it was interrupted, in its own words, without a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except UserError as error:
            raise click.ClickException(str(error)) from error
        except KeyboardInterrupt:
            click.echo("Interrupted. `sparkfleet lab up` goes on from here, `sparkfleet lab down` clears up.", err=True)
            ctx.exit(130)  # as a shell counts it


@click.group(cls=_Group)
@click.option(
    "--lab", "name", envvar="SPARKFLEET_LAB", default=DEFAULT, show_default=True, help="Which lab. [$SPARKFLEET_LAB]"
)
@click.pass_context
def command(ctx: click.Context, name: str) -> None:
    """Throw-away Sparks on this machine: real systemd and sshd, a stand-in for the GPU. Needs sudo.

    Deploy to them with: pyinfra inventory/lab.py deploy.py
    """
    os.umask(0o022)  # a host's files have modes of their own, whatever this shell's habit
    started = time.monotonic()

    def report(message: str) -> None:
        click.echo(f"[{time.monotonic() - started:5.1f} s] {message}", err=True)

    ctx.obj = Lab(name, report)


@command.command()
@click.argument("count", type=click.IntRange(1), default=2)
@click.option(
    "--scenario",
    "chosen",
    multiple=True,
    metavar="NAME",
    help="What the first host pretends; again for the second, and so on; the rest are good. One of: "
    f"{', '.join(scenarios.names())}.",
)
@click.pass_obj
def up(lab: Lab, count: int, chosen: tuple[str, ...]) -> None:
    """Have COUNT Sparks (2) up and ready, and what to serve on them.

    The first time, downloads their engine and builds their image: minutes.
    """
    lab.up(count, chosen)
    supplies.make(lab.report)  # last: what is wrong with this machine is said before anything is downloaded
    click.echo("Ready. Next: pyinfra inventory/lab.py deploy.py    In the end: sparkfleet lab down")


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.pass_obj
def list_(lab: Lab, as_json: bool) -> None:
    """The lab's hosts, their addresses, and whether they answer."""
    rows = [_row(lab, host) for host in lab.hosts()]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    if not rows:
        click.echo(f"Lab {lab.name!r} has no hosts. Start some: sparkfleet lab up")
        return
    table = Table(box=None, header_style="bold")
    for heading in ("host", "state", "address", "fabric", "scenario"):
        table.add_column(heading)
    for row in rows:
        fabric = ", ".join(row["fabric"].values())
        table.add_row(row["name"], "up" if row["up"] else "off", row["address"], fabric, row["scenario"])
    Console().print(table)


@command.command(context_settings={"ignore_unknown_options": True})
@click.argument("name")
@click.argument("remote", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
@click.pass_obj
def ssh(lab: Lab, name: str, remote: tuple[str, ...]) -> None:
    """Log in to a host as its user `spark`, or run a command there."""
    # One argument is for the host's shell to read; several are a command and its arguments.
    argv = lab.ssh(lab.host(name), *(remote if len(remote) == 1 else map(shlex.quote, remote)))
    os.execvp(argv[0], argv)


@command.command()
@click.argument("names", nargs=-1)
@click.pass_obj
def down(lab: Lab, names: tuple[str, ...]) -> None:
    """Remove hosts (all, if none is named) and every trace of them on this machine but the cached image."""
    gone = lab.down(names)
    click.echo(f"Gone: {', '.join(gone)}." if gone else f"Lab {lab.name!r} had no hosts.")


def _row(lab: Lab, host: Host) -> dict[str, Any]:
    try:
        socket.create_connection((host.address, 22), timeout=1).close()
        answers = True
    except OSError:
        answers = False
    return {
        "name": host.name,
        "up": answers,
        "address": host.address,
        "fabric": host.fabric,
        "scenario": host.scenario,
        "ssh": lab.ssh(host),
    }
