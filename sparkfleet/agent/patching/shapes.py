"""What a patch set is once versions are known, and what is reported about it. Plain data: ``wire`` carries it."""

from dataclasses import dataclass
from typing import Literal

#: Version of these shapes, of the journal and of the state file.
SCHEMA = 1

Class = Literal["required", "optional", "not-needed", "refused"]

State = Literal["pristine", "applied", "upstreamed", "not-applicable", "not-needed", "conflict", "missing"]

#: States of a wanted patch in which there is nothing left to do.
SETTLED: frozenset[State] = frozenset(("applied", "upstreamed", "not-applicable", "not-needed"))

#: States of a wanted patch that nothing here can change: somebody must look.
BLOCKED: frozenset[State] = frozenset(("conflict", "missing"))


@dataclass(frozen=True)
class Edit:
    """Replace ``old`` by ``new``; ``old`` must be in the file exactly once. Lines end in a line feed."""

    old: str
    new: str


@dataclass(frozen=True)
class Sign:
    """A file that has ``text`` (or, if not ``present``, lacks it) was mended upstream; ``why`` says by what."""

    text: str
    present: bool
    why: str


@dataclass(frozen=True)
class Target:
    """A file of a distribution. Without ``when`` in it, it is not the file meant; without edits it is only read."""

    distribution: str
    path: str
    when: str
    edits: tuple[Edit, ...]
    upstreamed: tuple[Sign, ...]


@dataclass(frozen=True)
class Precedence:
    """Two distributions own the same paths: every shared file must be ``winner``'s, not ``loser``'s."""

    winner: str
    loser: str


@dataclass(frozen=True)
class Verdict:
    """What versions alone decide."""

    state: State
    reason: str


@dataclass(frozen=True)
class Probe:
    """Python that proves the patch by what the file then does: ends normally, or raises with the reason.

    It is run with the names of ``probe_helpers`` and with ``environment`` added.
    """

    code: str
    environment: dict[str, str]


@dataclass(frozen=True)
class Patch:
    """One semantic change, for the versions that the set was compiled for. ``reason`` belongs to the class."""

    id: str
    title: str
    link: str
    kind: Class
    reason: str
    wanted: bool
    targets: tuple[Target, ...]
    precedence: Precedence | None
    verdict: Verdict | None
    probe: Probe | None


@dataclass(frozen=True)
class PatchSet:
    """All patches, those wanted marked; ``versions`` are the distributions' versions that it was compiled for."""

    schema: int
    name: str
    versions: dict[str, str]
    patches: tuple[Patch, ...]


@dataclass(frozen=True)
class Row:
    """The state of one patch on one target; ``target`` is a path relative to site-packages, or empty."""

    patch: str
    title: str
    kind: Class
    wanted: bool
    distribution: str
    target: str
    state: State
    reason: str
    link: str


@dataclass(frozen=True)
class ProbeResult:
    """``untried`` when no Python of the release was found, or it lacks what the probe imports."""

    patch: str
    outcome: Literal["passed", "failed", "untried"]
    detail: str


@dataclass(frozen=True)
class Report:
    """What is true of a directory. ``changed`` are the paths that this run wrote.

    ``interrupted``: a change was cut off half way; the next apply or revert settles it first.
    """

    schema: int
    site: str
    name: str
    rows: tuple[Row, ...]
    interrupted: bool = False
    changed: tuple[str, ...] = ()
    probes: tuple[ProbeResult, ...] = ()

    @property
    def converged(self) -> bool:
        """Every wanted patch is settled, no other has edited a file, nothing was interrupted and no probe failed."""
        as_wanted = all(
            row.state in SETTLED if row.wanted else row.state != "applied" or not row.target for row in self.rows
        )
        return as_wanted and not self.interrupted and all(probe.outcome != "failed" for probe in self.probes)
