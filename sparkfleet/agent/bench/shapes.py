"""What is measured and what comes of it. Times are seconds; every figure that people see is reckoned from these."""

from dataclasses import dataclass

from ..audit.shapes import Audit, Model
from ..shapes import Expectation

#: The two generators of load, as they are called in results.
VLLM = "vllm bench serve"
OWN = "sparkfleet"


@dataclass(frozen=True)
class Bench:
    """A unit to be measured: ``release`` and ``model`` are directories on the host.

    ``remote_code``: its tokenizer is code of the model's repository, which the recipe lets the engine run.
    """

    expectation: Expectation
    release: str
    model: Model
    remote_code: bool


@dataclass(frozen=True)
class BenchOrder:
    """Measure every unit with so many streams at once, ``tokens`` tokens each.

    ``run`` tells its results from others'. ``user`` is who generates the load, from ``home``; results go to the file
    ``results``, what is said to the directory ``logs``.
    """

    run: str
    benches: tuple[Bench, ...]
    concurrency: tuple[int, ...]
    tokens: int
    prompt_tokens: int
    user: str
    home: str
    results: str
    logs: str


@dataclass(frozen=True)
class Stream:
    """One answer: seconds to its first token, seconds from there to its last, tokens in all."""

    first: float
    seconds: float
    tokens: int


@dataclass(frozen=True)
class Load:
    """What ``generator`` measured with ``concurrency`` streams at once in ``seconds``; ``failed`` requests are none."""

    generator: str
    concurrency: int
    seconds: float
    streams: tuple[Stream, ...]
    failed: int = 0


@dataclass(frozen=True)
class Measured:
    """A recipe's loads; or ``reason``, why there are none. ``command``: how vLLM's were made. ``at``: when it began."""

    recipe: str
    at: float
    loads: tuple[Load, ...] = ()
    command: tuple[str, ...] = ()
    audit: Audit | None = None
    reason: str = ""
    note: str = ""


@dataclass(frozen=True)
class Results:
    """What was measured on behalf of ``run``."""

    run: str
    measured: tuple[Measured, ...]
