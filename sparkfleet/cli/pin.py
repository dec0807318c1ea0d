"""``sparkfleet pin RECIPE``: the model of a recipe at one commit, with every file of it."""

from pathlib import Path

import click

from sparkfleet.catalog.recipes import path_of
from sparkfleet.cli.errors import explained
from sparkfleet.hub import revision
from sparkfleet.pinning import pin, pinnable, sizes


@click.command()
@click.argument("recipe", metavar="RECIPE|FILE")
@click.option("--revision", "wanted", default="main", show_default=True, help="A branch, tag or commit of the model.")
@explained
def command(recipe: str, wanted: str) -> None:
    """Ask the hub which commit the model of RECIPE is at, and write it into the recipe's file, with every file of that
    commit that an engine needs, its size and its hash. Comments and all other lines stay.

    RECIPE is a name, of the catalog or of recipes/, or a file. Which hub: HF_ENDPOINT. The token is taken from where
    the hub's own client keeps it.
    """
    path = Path(recipe) if recipe.endswith((".yaml", ".yml")) else path_of(recipe)
    found = pinnable(path)
    assert found.model.repository
    there = revision(found.model.repository, wanted, lambda line: click.echo(line, err=True))
    changed = pin(path, found, there)
    said = "pinned to" if changed else "already at"
    click.echo(f"{found.name}: {said} {there.commit} of {found.model.repository}, {sizes(there.files)}.")
    if changed:
        click.echo(path)
