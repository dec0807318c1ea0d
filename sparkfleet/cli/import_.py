"""``sparkfleet import FILE``: a recipe of spark-vllm-docker or sparkrun as one of ours."""

from pathlib import Path

import click

from sparkfleet.cli.errors import explained
from sparkfleet.foreign import FILL_IN, imported


@click.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--engine", metavar="ENGINE", help="The engine it is to be for; by default the newest that has a lock.")
@click.option("--name", metavar="NAME", help="What it is to be called, as its file will be; by default as FILE is.")
@explained
def command(file: Path, engine: str | None, name: str | None) -> None:
    """Print the recipe in FILE, written for spark-vllm-docker (version 1) or sparkrun (version 2), as one of ours.

    What has no counterpart is listed on standard error. Values that only you can give say FILL IN; the recipe is
    refused until you have. Check the result with `sparkfleet lint`.

    A recipe is called as its file is: keep it as recipes/NAME.yaml.
    """
    found = imported(file, engine, name)
    click.echo(found.text, nl=False)
    for line in found.left_out:
        click.echo(f"not taken: {line}.", err=True)
    if FILL_IN in found.text:
        click.echo(f"Search the result for {FILL_IN!r}: nothing of theirs says it.", err=True)
