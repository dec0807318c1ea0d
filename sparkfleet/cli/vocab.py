"""``sparkfleet vocab --dest DIR``: the vocabularies of gpt-oss in a directory, for fleets without internet."""

from pathlib import Path

import click

from sparkfleet import vocabularies
from sparkfleet.cli.errors import explained


@click.command()
@click.option("--dest", required=True, type=click.Path(file_okay=False, path_type=Path), help="Made when not there.")
@click.option("--from", "given", metavar="PLACE", help="A file or directory that has them, instead of the internet.")
@explained
def command(dest: Path, given: str | None) -> None:
    """Put the vocabularies that gpt-oss needs on engines with openai-harmony into DIR.

    A control machine without internet is given DIR by the setting `vocabularies`. Their bytes are rebuilt from the
    wheel of oss-harmony, or else fetched from their own address, and checked either way.
    """
    for one in vocabularies.bring(dest, given, lambda line: click.echo(line, err=True)):
        click.echo(f"{dest / one.name}: {one.size} bytes, SHA-256 {one.sha256}")
