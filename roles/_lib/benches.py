"""The recipes of a host, measured: what the agent is told; the table, the document and the plots that come of it."""

import contextlib
import json
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roles._lib import audits, plots
from roles._lib.facts import Run, all_runs, ask, author
from roles._lib.report import document_printer, troubles
from roles._lib.unreached import why_unreached
from sparkfleet import bench, roofline
from sparkfleet.agent import wire
from sparkfleet.agent.__main__ import ANSWER
from sparkfleet.agent.bench.shapes import Bench, BenchOrder, Measured, Results
from sparkfleet.expectations import expectation
from sparkfleet.plan import LOGS, STATE, USER, RecipePlan, ReleasePlan

if TYPE_CHECKING:
    from rich.console import Console

#: Version of the document for machines.
SCHEMA = 1

#: The method of the write-ups that recipes quote: so many tokens an answer, at temperature 0, after one warm-up.
TOKENS = 200

#: Tokens of a prompt: short, so that what is measured is decoding.
PROMPT_TOKENS = 32

#: Where documents and plots go on this machine.
DIRECTORY = Path("bench")

RESULTS = f"{LOGS}/bench.json"

#: Tells the results of this run from those of the last.
_THIS_RUN = uuid.uuid4().hex

_measured: dict[str, tuple[Measured, ...]] = {}


def order(run: Run) -> BenchOrder:
    """What the agent is told to measure on this host."""
    return BenchOrder(
        run=_THIS_RUN,
        benches=tuple(_bench(run, one) for one in run.plan.recipes),
        concurrency=run.plan.bench_concurrency,
        tokens=TOKENS,
        prompt_tokens=PROMPT_TOKENS,
        user=USER,
        home=f"{STATE}/home",
        results=RESULTS,
        logs=LOGS,
    )


def _bench(run: Run, one: RecipePlan) -> Bench:
    remote_code = one.recipe.on(one.engine).flags.get("trust-remote-code") is True
    return Bench(expectation(one), _release(run, one).path, audits.model(one), remote_code)


def _release(run: Run, one: RecipePlan) -> ReleasePlan:
    return next(release for release in run.plan.releases if release.name == one.release)


def fetch(run: Run) -> None:
    """Ask the host for what was measured just now."""
    answer = ask(run, f"benched {RESULTS}", "")
    if answer.startswith(ANSWER):
        found = wire.decode(Results, answer.removeprefix(ANSWER))
        if found.run == _THIS_RUN:
            _measured[run.host.name] = found.measured


@cache
def at_end() -> Callable[[list[str]], None]:
    """What is told at the end of the run: a table, and where document and plots are; with ``--json`` the document."""
    print_document = document_printer()
    return (lambda names: print_document(document(names))) if print_document else _tell


def _tell(names: list[str]) -> None:
    from rich.console import Console  # 40 ms that a deploy does not need

    console = Console(highlight=False)
    content = document(names)
    for one in content["results"]:
        show(one, console)
    for name in names:
        if name not in _measured:
            run = all_runs().get(name)
            why = (run.blocked or run.why or "see above") if run else f"not reached. {why_unreached(name)}."
            console.print(f"\n  {name}: not measured: {why}", markup=False)
    try:
        for path in _keep(content) if content["results"] else ():
            _say(console, f"  {path}")
    except OSError as error:
        _say(console, f"  {DIRECTORY}/: document and plots cannot be written there ({error.strerror})")
    troubles(names)


def _keep(content: dict[str, Any]) -> Iterable[Path]:
    """Write the document and a plot for each result; their paths."""
    stamp = time.strftime("%Y-%m-%d-%H%M%S")
    DIRECTORY.mkdir(exist_ok=True)
    texts = {f"{stamp}.json": json.dumps(content, indent=2, ensure_ascii=False) + "\n"}
    for one in content["results"]:
        if one["points"]:
            texts[f"{stamp}-{one['host']}-{one['recipe']}.svg"] = plots.plot(one)
    for name, text in texts.items():
        path = DIRECTORY / name.replace("/", "_")
        path.write_text(text, encoding="utf-8")
        yield path


def document(names: list[str]) -> dict[str, Any]:
    """All that was measured on the hosts ``names``, with what is needed to measure it again."""
    runs = all_runs()
    results = [result(runs[name], one) for name in names for one in _measured.get(name, ())]
    return {
        "schema": SCHEMA,
        "sparkfleet": author().revision,
        "method": {
            "tokens": TOKENS,
            "prompt_tokens": PROMPT_TOKENS,
            "temperature": 0,
            "warm_ups": 1,
            "tolerance": bench.TOLERANCE,
        },
        "results": results,
    }


def result(run: Run, measured: Measured) -> dict[str, Any]:
    """One recipe on one host for machines. Figures of Sparks stand beside it only where it is one."""
    plan = next(one for one in run.plan.recipes if one.name == measured.recipe)
    machine = run.seen.machine if run.seen else None
    spark = plan.gpu and machine is not None and machine.lab is None
    decode = plan.recipe.decode if spark else None
    audit = measured.audit if measured.audit and not measured.audit.trouble else None
    curve = bench.curve(measured.loads)
    return {
        "host": run.host.name,
        "recipe": plan.name,
        "sparkfleet": author().revision,
        "at": measured.at,
        "reason": measured.reason,
        "note": measured.note,
        "model": {"repository": plan.recipe.model.repository, "revision": plan.recipe.model.revision},
        "quantization": audit.method if audit else "",
        "engine": plan.engine,
        "release": plan.release,
        "digest": _release(run, plan).digest,
        "serve": list(plan.command),
        "environment": plan.environment,
        "bench": list(measured.command),
        "machine": {
            "spark": spark,
            "gpu": machine.gpu.name,
            "driver": machine.gpu.driver,
            "kernel": machine.kernel.running,
            "dgx_os": machine.release.ota,
            "temperature": machine.gpu.temperature,
        }
        if machine
        else None,
        "points": [asdict(one) for one in curve],
        "agreement": {str(number): list(pair) for number, pair in bench.agreement(measured.loads).items()},
        "agrees": not bench.disagrees(measured.loads),
        "loads": [asdict(one) for one in measured.loads],
        "read": audit.read if audit else None,
        "ceiling": round(roofline.ceiling(audit), 2) if audit and spark else None,
        "baseline": decode.baseline if decode else None,
        "floor": decode.floor if decode else None,
        "aggregate": {str(number): speed for number, speed in decode.aggregate.items()} if decode else {},
    }


def show(one: dict[str, Any], console: "Console") -> None:
    """Print one result of a document."""
    from rich.table import Table

    machine = one["machine"] or {}
    where = [str(machine[key]) for key in ("gpu",) if machine.get(key)]
    where += [f"{key} {machine[key]}" for key in ("driver", "kernel") if machine.get(key)]
    _say(console, f"\n{one['host']}: {one['recipe']} on {one['engine']}; {', '.join(where)}")
    if one["reason"]:
        _say(console, f"  not measured: {one['reason']}")
        return
    table = Table(box=None, header_style="bold")
    for name in ("clients", "tok/s in all", "tok/s each", "95 % over", "first token", "95 % within"):
        table.add_column(name, justify="right")
    for each in one["points"]:
        figures = [f"{each[key]:.1f}" for key in ("total", "each", "each_slow")]
        times = [f"{each[key] * 1000:.0f} ms" for key in ("first", "first_late")]
        table.add_row(str(each["concurrency"]), *figures, *times)
    console.print(table)
    for line in _lines(one):
        _say(console, f"  {line}")


def _lines(one: dict[str, Any]) -> Iterable[str]:
    points = {each["concurrency"]: each for each in one["points"]}
    if failed := sum(each["failed"] for each in one["points"]):
        yield f"{failed} requests failed: see the log of the unit."
    if held := sum(each["held_up"] for each in one["points"]):
        yield f"{held} answers came in one piece, for the client got no processor: not counted under tok/s each."
    if 1 in points:
        with contextlib.suppress(ZeroDivisionError):
            yield from _against(one, points[1]["each"])
    for number, speed in one["aggregate"].items():
        if int(number) in points:
            total = points[int(number)]["total"]
            yield f"{number} clients: {total / speed:.0%} of the recipe's {speed:g} tok/s in all."
    if not (one["machine"] or {}).get("spark"):
        yield "This is no Spark: nothing here is judged by a Spark's figures."
    if one["agreement"]:
        pairs = ((_clients(number), *pair) for number, pair in one["agreement"].items())
        said = ", ".join(
            f"with {clients} {each:.0%} of tok/s each and {total:.0%} in all" for clients, each, total in pairs
        )
        verdict = "they agree" if one["agrees"] else "they do NOT agree, measure again when the machine is at rest"
        yield f"A second generator (sparkfleet's own streams) measured {said}: {verdict}."
    if one["note"]:
        yield f"{one['note']}."


def _clients(number: str) -> str:
    return "1 client" if number == "1" else f"{number} clients"


def _against(one: dict[str, Any], rate: float) -> Iterable[str]:
    """One client's speed beside what others measured, what is too slow, and what memory allows."""
    if one["baseline"]:
        yield f"One client: {rate / one['baseline']:.0%} of the recipe's baseline of {one['baseline']:g} tok/s."
    if one["floor"] and rate < one["floor"]:
        yield f"That is below its floor of {one['floor']:g} tok/s: tasks/verify.py says what may be the cause."
    if one["ceiling"]:
        yield (
            f"{rate / one['ceiling']:.0%} of what memory bandwidth allows ({one['ceiling']:.0f} tok/s: "
            f"{one['read'] / 1e9:.2f} GB a token)."
        )


def _say(console: "Console", line: str) -> None:
    console.print(line, markup=False, soft_wrap=True)
