"""The models of a host, audited: what is asked of the agent, and the text and the document that come of it."""

from collections.abc import Callable, Iterable
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any

from roles._lib.facts import Run, all_runs, ask, author
from roles._lib.report import document_printer
from roles._lib.unreached import why_unreached
from sparkfleet import roofline
from sparkfleet.agent import wire
from sparkfleet.agent.__main__ import ANSWER
from sparkfleet.agent.audit import kinds
from sparkfleet.agent.audit.shapes import Audit, AuditQuestion, Audits, Group, Model
from sparkfleet.plan import RecipePlan

if TYPE_CHECKING:
    from rich.console import Console

#: Version of the document for machines.
SCHEMA = 1

_audits: dict[str, tuple[Audit, ...]] = {}


def look(run: Run) -> None:
    """Audit every model of the host. A blocked host can be asked, too: nothing is changed."""
    if run.seen is None:
        return
    models = tuple(model(one) for one in run.plan.recipes)
    answer = ask(run, "audit", wire.encode(AuditQuestion(models)))
    if answer.startswith(ANSWER):
        _audits[run.host.name] = wire.decode(Audits, answer.removeprefix(ANSWER)).audits
    else:
        _audits[run.host.name] = tuple(Audit(one.recipe, one.path, trouble=answer) for one in models)


def model(one: RecipePlan) -> Model:
    """The model of a recipe, as it is asked about."""
    return Model(one.name, one.model_path, one.model_source)


@cache
def at_end() -> Callable[[list[str]], None]:
    """What is to be told at the end of the run: text for people, with ``--json`` one document and nothing else."""
    print_document = document_printer()
    return (lambda names: print_document(_all(names))) if print_document else _print


def _all(names: list[str]) -> dict[str, Any]:
    hosts = {name: [document(one) for one in _audits.get(name, ())] for name in names}
    troubles = {name: _trouble(name) for name in names if name not in _audits}
    return {
        "schema": SCHEMA,
        "sparkfleet": author().revision,
        "bandwidth": roofline.BANDWIDTH,
        "hosts": hosts,
        "troubles": troubles,
    }


def document(audit: Audit) -> dict[str, Any]:
    """One audit for machines; sizes in bytes."""
    figures = {"size": audit.size, "read": audit.read, "ceiling": round(roofline.ceiling(audit), 2)}
    leftovers = [one.module for one in roofline.leftovers(audit)]
    return asdict(audit) | figures | {"leftovers": leftovers, "in_eight_bits": round(roofline.in_eight_bits(audit), 2)}


def _trouble(name: str) -> str:
    run = all_runs().get(name)
    return run.trouble if run else f"not reached. {why_unreached(name)}."


def _print(names: list[str]) -> None:
    from rich.console import Console  # 40 ms that a deploy does not need

    console = Console(highlight=False)
    hosts: dict[Audit, list[str]] = {}  # the same model on many hosts is spoken of once
    for name in names:
        if name not in _audits:
            console.print(f"\n  {name}: {_trouble(name)}", markup=False)
        for one in _audits.get(name, ()):
            hosts.setdefault(one, []).append(name)
    baselines = {one.name: _baseline(one) for run in all_runs().values() for one in run.plan.recipes}
    for audit, where in hosts.items():
        show(audit, where, baselines.get(audit.recipe, 0.0), console)


def _baseline(one: RecipePlan) -> float:
    return one.recipe.decode.baseline if one.recipe.decode and one.gpu else 0.0


def show(audit: Audit, where: list[str], baseline: float, console: "Console") -> None:
    """Print one audit. ``baseline``: tokens a second that somebody measured on a Spark; 0: nobody has."""
    from rich.table import Table

    hosts = ", ".join(where[:3]) + (f" and {len(where) - 3} more" if len(where) > 3 else "")
    _say(console, f"\n{hosts}: {audit.recipe}: {audit.path}")
    if audit.trouble:
        _say(console, f"  {audit.trouble}")
        return
    experts = f", {audit.active} of {audit.experts} experts a token" if audit.experts else ""
    _say(console, f"{audit.architecture or 'architecture not named'}, quantised: {audit.method}{experts}\n")
    table = Table("kind", "quantised", box=None, header_style="bold")
    for name in ("layers", "GB", "GB/token", "share"):
        table.add_column(name, justify="right")
    for row in roofline.rows(audit):
        share = f"{row.read / audit.read:.0%}" if audit.read else ""
        table.add_row(row.kind, row.method, str(row.layers), f"{row.size / 1e9:.3f}", f"{row.read / 1e9:.3f}", share)
    table.add_section()
    table.add_row("all", "", "", f"{audit.size / 1e9:.3f}", f"{audit.read / 1e9:.3f}", "")
    console.print(table)
    for line in _lines(audit, baseline):
        _say(console, line)


def _lines(audit: Audit, baseline: float) -> Iterable[str]:
    left = roofline.leftovers(audit)
    if left:
        yield "\n  not quantised and read for every token, largest first:"
        yield from (f"    {one.read / 1e9:6.3f} GB  {_named(one)}" for one in left[:12])
        if rest := left[12:]:
            yield f"    {sum(one.read for one in rest) / 1e9:6.3f} GB  {len(rest)} more"
    for one in audit.groups:
        if one.kind == kinds.UNKNOWN or one.method.startswith("unknown"):
            yield f"  unknown: {_named(one)}: {one.size / 1e9:.3f} GB, counted as read whole"
    most = roofline.ceiling(audit)
    yield f"\n  {audit.read / 1e9:.3g} GB a token; a Spark reads 273 GB/s: at most {most:.0f} tok/s for one stream."
    if left:
        wide = sum(one.read for one in left)
        yield (
            f"  {wide / 1e9:.2f} GB of it is not quantised; with 8 bits there, at most "
            f"{roofline.in_eight_bits(audit):.0f} tok/s."
        )
    if baseline and audit.read:
        yield f"  The recipe's baseline, {baseline:g} tok/s, is {baseline / most:.0%} of that ceiling."
    yield from (f"  Note: {note}." for note in audit.notes)


def _named(one: Group) -> str:
    times = f"{one.layers} x " if one.layers > 1 else ""
    name = one.module.rpartition("layers.*.")[2]
    why = " (its configuration says so)" if one.excluded else ""
    return f"{times}{name} {list(one.shape)} {one.stored}{why}"


def _say(console: "Console", line: str) -> None:
    console.print(line, markup=False, soft_wrap=True)
