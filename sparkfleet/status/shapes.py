"""The document that ``tasks/status.py --json`` prints: what is known of a fleet, and how it differs from the plan.

Times are seconds since the epoch by the clock of the machine they are about, durations seconds, sizes bytes; ``None``
stands for what is not known, never for nought.
"""

from dataclasses import dataclass, field

from sparkfleet.agent.facts.shapes import Machine
from sparkfleet.agent.shapes import Finding, ReleaseState
from sparkfleet.fleet import Verdict

#: Version of the document.
SCHEMA = 1


@dataclass(frozen=True)
class RecipeStatus:
    """One recipe on one host. ``detail`` says more where ``state`` is not good.

    ``since``: how long it has been in that state. ``running``, ``waiting``: requests; ``kv_use``: share of the KV cache
    in use (0 to 1). ``verified``: how long ago this start of it was verified, ``passed`` with which outcome, ``reason``
    why that failed, ``note`` what else is to be said; None: it was not verified since it was started.
    """

    recipe: str
    engine: str
    state: str
    detail: str = ""
    since: float | None = None
    running: int | None = None
    waiting: int | None = None
    kv_use: float | None = None
    verified: float | None = None
    passed: bool | None = None
    reason: str = ""
    note: str = ""
    tokens_per_second: float | None = None
    question: str = ""
    answer: str = ""


@dataclass(frozen=True)
class Drift:
    """Something that is not as it should be: which role is about it, why that is so, and what comes of a deploy."""

    role: str
    thing: str
    cause: str
    remedy: str


@dataclass(frozen=True)
class HostStatus:
    """One host. ``trouble`` is why it could not be asked; ``deployed``: who laid down what is there, and when."""

    verdict: Verdict
    trouble: str = ""
    deployed: str = ""
    findings: tuple[Finding, ...] = ()
    recipes: tuple[RecipeStatus, ...] = ()
    drift: tuple[Drift, ...] = ()
    to_change: tuple[str, ...] = ()
    releases: tuple[ReleaseState, ...] = ()
    machine: Machine | None = None


@dataclass(frozen=True)
class FleetStatus:
    """Every host of a run, and what is to be said of them together. ``at``: when they were looked at."""

    schema: int
    sparkfleet: str
    at: float
    hosts: dict[str, HostStatus] = field(default_factory=dict)
    fleet: tuple[Finding, ...] = ()
