"""``sparkfleet plan INVENTORY``: what a deploy would make true, worked out without asking a host."""

import json

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sparkfleet.cli.errors import explained
from sparkfleet.inventory import hosts
from sparkfleet.plan import GIB, HostPlan, check_addresses, check_suppliers, plan_host


@click.command()
@click.argument("inventory", type=click.Path(exists=True, dir_okay=False))
@click.option("--json", "as_json", is_flag=True, help="For machines: one object a host.")
@explained
def command(inventory: str, as_json: bool) -> None:
    """Show what should be true on each host of INVENTORY. No host is contacted."""
    found = hosts(inventory)
    plans = [plan_host(name, data) for name, data in found.items()]
    check_addresses(plans, found)
    check_suppliers(plans, [plan.host for plan in plans])
    if as_json:
        click.echo(json.dumps([plan.model_dump(mode="json") for plan in plans], indent=1))
    else:
        Console().print(_table(plans))
        for note, names in _notes(plans).items():
            click.echo(f"\n{', '.join(names)}: {note}.")


def _notes(plans: list[HostPlan]) -> dict[str, list[str]]:
    """What is to be known beside the table, once for all hosts that it is true of."""
    told: dict[str, list[str]] = {}
    for plan in plans:
        for note in plan.notes:
            told.setdefault(note, []).append(plan.host)
    return told


def _table(plans: list[HostPlan]) -> Table:
    table = Table("host", "recipe", "port", "release", "memory", box=None)
    for plan in plans:
        memory = f"{plan.memory / GIB:.1f} GiB"
        for one in plan.recipes:
            table.add_row(escape(plan.host), one.name, str(one.port), one.release, memory)
        if not plan.recipes:
            table.add_row(escape(plan.host), "(none)", "", "", memory)
    return table
