"""``sparkfleet wheelhouse ENGINE --dest DIR``: every wheel of an engine, for its hosts, gathered on any machine."""

import shutil
from pathlib import Path

import click

from sparkfleet import vocabularies, wheelhouse
from sparkfleet.catalog.engines import Engine, engine
from sparkfleet.cli.errors import explained
from sparkfleet.cli.lock import sources


@click.command()
@click.argument("name", metavar="ENGINE")
@click.option("--dest", required=True, type=click.Path(file_okay=False, path_type=Path), help="Made when not there.")
@click.option("--dry", is_flag=True, help="Say what would be fetched and what it takes; fetch nothing.")
@click.option("--source", "given", multiple=True, metavar="NAME=PLACE", help="As given to `sparkfleet lock`.")
@explained
def command(name: str, dest: Path, dry: bool, given: tuple[str, ...]) -> None:
    """Download every wheel of ENGINE's lock into DIR, and uv's, and the vocabularies of gpt-oss for an engine that
    would fetch them: all that a fleet without internet needs to build it.

    Each byte is checked. Stop it whenever you like: the next run fetches what is missing. Engines may share a DIR.
    """
    wanted = engine(name)
    if dry:
        _dry(wanted, dest)
        return
    lacked = wheelhouse.make(wanted, dest, sources(given), lambda line: click.echo(line, err=True))
    click.echo(f"{dest}: {lacked.wheels} wheels of {name}, complete; {len(lacked.missing)} fetched now")
    if wanted.harmony == "openai-harmony":
        vocabularies.bring(dest, None, lambda line: click.echo(line, err=True))
        click.echo(f"{dest}: and the vocabularies of gpt-oss; `vocabularies` in the inventory may name this directory")


def _dry(wanted: Engine, dest: Path) -> None:
    lacking = wheelhouse.need(wanted, dest)
    there = lacking.wheels - len(lacking.missing)
    click.echo(f"{wanted.name}: {lacking.wheels} wheels, {there} there ({lacking.there / 1e9:.2f} GB)")
    click.echo(f"to fetch: {len(lacking.missing)} wheels, {lacking.size / 1e9:.2f} GB")
    existing = next(path for path in (dest.absolute(), *dest.absolute().parents) if path.exists())
    free = shutil.disk_usage(existing).free
    click.echo(f"free space it takes: {lacking.room / 1e9:.2f} GB, {free / 1e9:.2f} GB are free in {existing}")
