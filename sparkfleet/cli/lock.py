"""``sparkfleet lock ENGINE``: which files an engine is, and what it knows, made from its pins."""

import sys

import click

from sparkfleet.catalog.engines import engine
from sparkfleet.cli.errors import explained
from sparkfleet.errors import UserError
from sparkfleet.locking import lock


@click.command()
@click.argument("name", metavar="ENGINE")
@click.option("--check", is_flag=True, help="Write nothing; exit status 1 when the committed files are not these.")
@click.option("--upgrade", multiple=True, metavar="NAME", help="Take the newest allowed version of a distribution.")
@click.option("--source", "given", multiple=True, metavar="NAME=PLACE", help="Where the engine says that you know it.")
@explained
def command(name: str, check: bool, upgrade: tuple[str, ...], given: tuple[str, ...]) -> None:
    """Resolve the pins of ENGINE for its target into a lock, and read from the vLLM in it what it knows.

    Both become files beside the engine's in catalog/engines/. Versions already locked stay. Takes uv, and downloads
    vLLM's wheel once. Exit status: 0 done or as committed, 1 not as committed, 2 bad input.
    """
    wanted = engine(name)
    files = lock.make(wanted, sources(given), upgrade, lambda line: click.echo(line, err=True))
    different = lock.differences(files)
    if check:
        for line in different:
            click.echo(line)
        click.echo(f"{name}: " + ("not what its pins resolve to." if different else "as its pins resolve."))
        sys.exit(1 if different else 0)
    lock.write(files)
    for line in different:
        click.echo(line)
    for path in files:
        click.echo(path)


def sources(given: tuple[str, ...]) -> dict[str, str]:
    """``NAME=PLACE`` words as a mapping. Raises UserError for another form."""
    found: dict[str, str] = {}
    for one in given:
        name, equals, place = one.partition("=")
        if not name or not equals or not place:
            raise UserError(f"--source {one}: expected NAME=PLACE, like torch=ADDRESS-OF-AN-INDEX or vllm=WHEEL.")
        found[name] = place
    return found
