"""``sparkfleet vocab --dest DIR``: the vocabularies of gpt-oss in a directory, for fleets without internet."""

from pathlib import Path

import click

from sparkfleet import vocabularies
from sparkfleet.catalog.vocabularies import catalog
from sparkfleet.cli.errors import explained
from sparkfleet.errors import UserError


@click.command()
@click.option("--dest", required=True, type=click.Path(file_okay=False, path_type=Path), help="Made when not there.")
@click.option("--from", "given", metavar="PLACE", help="A file or directory that has them, instead of the internet.")
@explained
def command(dest: Path, given: str | None) -> None:
    """Put the vocabularies that gpt-oss needs on engines with openai-harmony into DIR.

    A control machine without internet is given DIR by the setting `vocabularies`. Their bytes are rebuilt from the
    wheel of oss-harmony, or else fetched from their own address, and checked either way.
    """
    contents = vocabularies.obtain(catalog().vocabularies, given, lambda line: click.echo(line, err=True))
    try:
        dest.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{dest}: cannot be made: {error.strerror}.") from None
    for one in catalog().vocabularies:
        vocabularies.write(dest / one.name, contents[one.name])
        click.echo(f"{dest / one.name}: {one.size} bytes, SHA-256 {one.sha256}")
