"""From the times of single streams to the figures that people compare. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from sparkfleet.agent.bench.shapes import OWN, VLLM, Load, Stream

#: How far two generators may be apart before the report says that they do not agree.
TOLERANCE = 0.10


@dataclass(frozen=True)
class Point:
    """One load in figures. ``total``: tokens a second of all streams together, from first request to last token.

    ``each``: tokens a second of one stream while it decodes, the median; ``each_slow``: 95 % of streams are no slower.
    ``held_up``: streams of which all tokens came at once, because the client got no processor; they count for ``total``
    alone. ``first``: seconds to the first token, the median; ``first_late``: 95 % of streams have it by then.
    """

    generator: str
    concurrency: int
    streams: int
    failed: int
    held_up: int
    tokens: int
    total: float
    each: float
    each_slow: float
    first: float
    first_late: float


def point(load: Load) -> Point:
    """The figures of ``load``; zeros where no stream came to an end."""
    usual = median([one.seconds for one in load.streams] or [0.0])
    flowing = [one for one in load.streams if one.seconds >= usual / 10]
    rates = [rate(one) for one in flowing]
    firsts = [one.first for one in flowing]
    tokens = sum(one.tokens for one in load.streams)
    return Point(
        generator=load.generator,
        concurrency=load.concurrency,
        streams=len(load.streams),
        failed=load.failed,
        held_up=len(load.streams) - len(flowing),
        tokens=tokens,
        total=tokens / load.seconds if load.seconds > 0 else 0.0,
        each=median(rates) if rates else 0.0,
        each_slow=percentile(rates, 0.05),
        first=median(firsts) if firsts else 0.0,
        first_late=percentile(firsts, 0.95),
    )


def rate(stream: Stream) -> float:
    """Tokens a second while it decodes: the first token, which takes the prompt in, does not count."""
    return (stream.tokens - 1) / stream.seconds if stream.tokens > 1 and stream.seconds > 0 else 0.0


def percentile(values: Sequence[float], share: float) -> float:
    """The value that ``share`` of ``values`` do not exceed, between neighbours by straight lines; 0 of none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def curve(loads: Iterable[Load]) -> tuple[Point, ...]:
    """One point for each number of clients, lowest first: vLLM's generator where it measured, else our own."""
    found: dict[int, Point] = {}
    for load in sorted(loads, key=lambda one: (one.concurrency, one.generator != VLLM)):
        found.setdefault(load.concurrency, point(load))
    return tuple(found.values())


def agreement(loads: Sequence[Load]) -> dict[int, tuple[float, float]]:
    """What our own streams measured over what vLLM's generator did, for each number of clients that both measured: of
    one stream, and of all together.
    """
    ours = {one.concurrency: point(one) for one in loads if one.generator == OWN}
    theirs = {one.concurrency: point(one) for one in loads if one.generator == VLLM}
    both = [(number, ours[number], theirs[number]) for number in sorted(ours.keys() & theirs.keys())]
    return {number: (a.each / b.each, a.total / b.total) for number, a, b in both if b.each > 0 and b.total > 0}


def disagrees(loads: Sequence[Load]) -> bool:
    """Whether the two generators are further apart than ``TOLERANCE`` anywhere."""
    return any(abs(ratio - 1) > TOLERANCE for pair in agreement(loads).values() for ratio in pair)
