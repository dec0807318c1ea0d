"""Measure every unit of an order; the results go into a file of the host, from where they are asked for."""

import time
from dataclasses import replace
from pathlib import Path

from .. import wire
from ..audit import tally
from ..audit.shapes import AuditQuestion
from ..errors import HostError
from ..paths import write
from ..process import environment_of
from ..progress import say
from ..proofs import proof
from ..proofs.serving import Engine, NotServing, engine_of
from ..services import units
from ..shapes import Author
from . import own
from .shapes import OWN, VLLM, Bench, BenchOrder, Load, Measured, Results
from .vllm import Generator, missing_module

#: Answers in one load: at least so many, and each client gives this many rounds.
_LEAST, _ROUNDS = 4, 2


def apply(order: BenchOrder, author: Author) -> None:
    """Measure what ``order`` says. Raises HostError, after all were tried, when one could not be measured."""
    measured = []
    for bench in order.benches:
        measured.append(_measured(bench, order))
        write(Path(order.results), wire.encode(Results(order.run, tuple(measured))), 0o644)
    if failed := [f"{one.recipe}: {one.reason}" for one in measured if one.reason]:
        raise HostError("\n".join(failed))


def results(path: str) -> Results:
    """What the last run measured. Raises HostError when there is nothing."""
    try:
        return wire.decode(Results, Path(path).read_text(encoding="ascii"))
    except (OSError, ValueError) as error:
        raise HostError(f"{path}: no results of a measurement ({error}).") from None


def streams(concurrency: int) -> int:
    """How many answers a load of so many clients consists of."""
    return max(_LEAST, _ROUNDS * concurrency)


def _measured(bench: Bench, order: BenchOrder) -> Measured:
    expectation = bench.expectation
    (state,) = units.look((expectation.unit,))
    environment = environment_of(state.pid)
    engine = engine_of(expectation, environment)
    (audit,) = tally.audit(AuditQuestion((bench.model,))).audits
    generator = Generator(bench, order, environment)
    found = Measured(expectation.recipe, round(time.time(), 1), audit=audit, command=generator.command(0, 0, "DIR"))
    try:
        proof.check(expectation, state, engine)
        own.measure(engine, expectation.model, 1, 1, order.tokens)  # the warm-up
        loads, note = _loads(generator, engine)
        return replace(found, loads=loads, note=note)
    except NotServing as error:
        return replace(found, reason=str(error))


def _loads(generator: Generator, engine: Engine) -> tuple[tuple[Load, ...], str]:
    """The loads, from lowest to highest; and what is to be said of how they were made.

    Our own streams measure the first and the last again: two generators that agree are not both wrong.
    """
    order, expectation = generator.order, generator.bench.expectation
    loads, note = [], ""
    for concurrency in order.concurrency:
        wanted = streams(concurrency)
        say(f"{expectation.recipe}: {concurrency} at once, {wanted} answers of {order.tokens} tokens")
        if not note:
            try:
                loads.append(_said(generator.measure(concurrency, wanted)))
            except HostError as error:
                note = _fallback(str(error))
                say(f"  {note}")
        if note or concurrency in (order.concurrency[0], order.concurrency[-1]):
            loads.append(_said(own.measure(engine, expectation.model, concurrency, wanted, order.tokens)))
    return tuple(loads), note


def _fallback(said: str) -> str:
    module = missing_module(said)
    why = f"needs the module {module}, which this release does not have" if module else f"failed: {said}"
    return f"`{VLLM}` {why}. From there on {OWN}'s own streams are the load"


def _said(load: Load) -> Load:
    tokens = sum(stream.tokens for stream in load.streams)
    say(f"  {load.generator}: {tokens} tokens in {load.seconds:.1f} s, {tokens / max(load.seconds, 1e-9):.1f} tok/s")
    return load
