"""What travels between the control machine and the agent: orders one way, the observed state the other.

Both sides use these same dataclasses; ``wire`` turns them into JSON and back. Sizes are bytes, times are seconds
since the epoch, modes are octal numbers as ``chmod`` takes them. ``None`` means that the machine did not say.
"""

import hashlib
from dataclasses import dataclass, field
from typing import Any, Literal

from .facts.shapes import Machine

#: Version of these shapes and of the receipt; an agent of another version is replaced before it is asked.
SCHEMA = 1

Severity = Literal["stop", "warn", "info"]


# --- what should be true -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Account:
    """The system user that units run as; ``groups`` are joined where they exist (GPU device nodes)."""

    name: str
    home: str
    groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class Directory:
    """A directory of ours."""

    path: str
    owner: str
    group: str
    mode: int


@dataclass(frozen=True)
class TextFile:
    """A file of ours, whole, owned by root. ``starts``: a process is started from it, and runs from what it said."""

    path: str
    content: str
    mode: int = 0o644
    starts: bool = True

    @property
    def sha256(self) -> str:
        """The SHA-256 of its bytes."""
        return hashlib.sha256(self.content.encode()).hexdigest()


@dataclass(frozen=True)
class Overlap:
    """Two distributions that own the same paths with different bytes: ``winner``'s must be there."""

    winner: str
    loser: str


@dataclass(frozen=True)
class Assertions:
    """What must hold of a built release, without a GPU: the CUDA major of torch and vLLM, None for an engine without
    CUDA, and the modules that can be imported.
    """

    cuda: int | None = None
    imports: tuple[str, ...] = ()


@dataclass(frozen=True)
class Release:
    """An engine to be built in ``path`` from a hash-locked wheelhouse on the host.

    ``python`` is the minor version to build with ("3.12"); ``lock`` the requirements text with every hash;
    ``uv`` the version of uv in the wheelhouse; ``uv_hashes`` the SHA-256 of its wheels. ``platform``: the machine that
    the wheels are for, as uv names it, when it is not this one (then nothing of the release can be run here).
    """

    name: str
    path: str
    engine: str
    digest: str
    python: str
    lock: str
    wheelhouse: str
    uv: str
    uv_hashes: tuple[str, ...]
    log: str
    tools: str
    overlaps: tuple[Overlap, ...] = ()
    platform: str = ""


@dataclass(frozen=True)
class Vocabulary:
    """A file of tokens; ``cache_name`` is what tiktoken and openai-harmony call it."""

    name: str
    cache_name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Vocabularies:
    """What should be in the directory ``path``; nothing needs to be there, nor the directory, without ``files``."""

    path: str
    files: tuple[Vocabulary, ...]


@dataclass(frozen=True)
class WheelSource:
    """Where wheels are handed out while a run lasts. ``name``: whose machine it is, in words."""

    name: str
    address: str
    port: int
    token: str


@dataclass(frozen=True)
class WheelsOrder:
    """The wheels of ``release``, to be brought into ``directory``. What they unpack to goes below ``releases``.

    ``lock``, ``uv`` and ``uv_hashes`` as in ``Release``; ``unpacked`` in bytes, 0 when not known. ``origin``: where
    they come from at last, in words; ``source``: who hands them out, known only in a run that needs them.
    """

    release: str
    directory: str
    releases: str
    unpacked: int
    lock: str
    uv: str
    uv_hashes: tuple[str, ...]
    origin: str
    source: WheelSource | None = None


@dataclass(frozen=True)
class ServeOrder:
    """Hand out the wheels of a lock that are in ``directory``, on ``address``, to ``peers`` who know ``token``."""

    directory: str
    lock: str
    uv: str
    uv_hashes: tuple[str, ...]
    address: str
    peers: tuple[str, ...]
    token: str


@dataclass(frozen=True)
class ServeModelOrder:
    """Hand out a model that is whole here, as ``ServeOrder`` does wheels."""

    model: str
    address: str
    peers: tuple[str, ...]
    token: str


@dataclass(frozen=True)
class WeightFile:
    """One file of a model."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Hub:
    """Where a model is on a hub, and who fetches it: ``python`` of a release, which has the client, run as ``user``.

    ``revision`` is a commit or ``unpinned``; ``endpoint`` None stands for the client's own.
    """

    repository: str
    revision: str
    endpoint: str | None
    python: str
    user: str


@dataclass(frozen=True)
class Weights:
    """A model to be laid down in ``path``: from another Spark, if ``peer`` says where it hands it out; else from the
    directory ``source`` on the host, if there is one; else from the hub.

    ``files`` is the recipe's manifest; empty where only the hub can list them.
    """

    model: str
    path: str
    source: str
    files: tuple[WeightFile, ...]
    hub: Hub | None = None
    peer: WheelSource | None = None


@dataclass(frozen=True)
class Unit:
    """The systemd service of a recipe. ``digest`` covers all settings that its process was started from.

    ``standby``: it is laid down, and waits: it does not fit beside one that is to run. Starting it stops that one.
    ``port``: where it listens; 0 in what an older sparkfleet wrote down.
    """

    recipe: str
    name: str
    release: str
    model: str
    files: tuple[TextFile, ...]
    digest: str
    start_timeout: int
    standby: bool = False
    port: int = 0


@dataclass(frozen=True)
class Prompt:
    """Something to ask at temperature 0. ``expect``: a regular expression that the answer must contain, or empty."""

    name: str
    ask: str
    system: str
    expect: str
    max_tokens: int
    stream: bool


@dataclass(frozen=True)
class JournalRule:
    """A regular expression that a line of a start's journal must match (``required``), or that none may.

    ``meaning``: what it says when that is not so, and what to do.
    """

    pattern: str
    required: bool
    meaning: str


@dataclass(frozen=True)
class Speed:
    """Decode speed of one stream, tokens a second. Below ``floor`` it is a failure, ``causes`` in order of likelihood;
    near ``ceiling``, what memory bandwidth allows, nothing is left to gain. 0: there is no such figure. ``spark``: the
    figures are of a Spark, other machines are not judged by them.
    """

    tokens: int
    spark: bool = True
    floor: float = 0.0
    ceiling: float = 0.0
    causes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Expectation:
    """What must be true of a served model.

    ``model`` is the id that ``/v1/models`` must name, ``context`` its tokens (0: not looked at); ``command`` and
    ``environment`` are what the engine's process must have been started with, ``parser`` is its reasoning parser,
    ``address`` where the host reaches it.
    """

    recipe: str
    unit: str
    port: int
    model: str
    context: int
    command: tuple[str, ...]
    environment: dict[str, str]
    parser: str
    journal: tuple[JournalRule, ...]
    prompts: tuple[Prompt, ...]
    speed: Speed
    address: str = "127.0.0.1"


@dataclass(frozen=True)
class AccountOrder:
    account: Account
    directories: tuple[Directory, ...]
    files: tuple[TextFile, ...]


@dataclass(frozen=True)
class VocabOrder:
    """``contents``: each vocabulary by its name, packed (``vocab.packed``)."""

    wanted: Vocabularies
    contents: dict[str, str] = field(repr=False)


@dataclass(frozen=True)
class WeightsOrder:
    """``token`` is what the hub knows the user by: a secret, which goes no further than the fetching process."""

    models: tuple[Weights, ...]
    token: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class ServiceOrder:
    """Units that should run, and the names of ours that should no longer be there."""

    units: tuple[Unit, ...]
    retired: tuple[str, ...] = ()


@dataclass(frozen=True)
class VerifyOrder:
    expectations: tuple[Expectation, ...]


@dataclass(frozen=True)
class RollbackOrder:
    """Go back to a served set: the generation (``Unit.digest``) of each unit, by the unit's name."""

    units: dict[str, str]


@dataclass(frozen=True)
class GarbageOrder:
    """Releases below ``home`` that nothing needs any more, by name, and where what was theirs is."""

    home: str
    caches: str
    logs: str
    wheels: str
    releases: tuple[str, ...]


@dataclass(frozen=True)
class RemovalOrder:
    """Take off a host what is ours: ``trees`` with all that is in them, ``directories`` if nothing is left in them.

    ``releases`` is the tree of them. Weights and logs, which may outlive the rest, are trees in ``asked`` or ``kept``.
    """

    agent: str
    releases: str
    trees: tuple[str, ...]
    asked: tuple[str, ...]
    kept: tuple[str, ...]
    directories: tuple[str, ...]


@dataclass(frozen=True)
class Removal:
    """What a ``RemovalOrder`` comes to on a host, in a person's words: what goes, in order; what is kept as the order
    says; what of ours has to be left, and why. ``lost``: why nothing can be removed.
    """

    goes: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    lost: str = ""


@dataclass(frozen=True)
class DeepOrder:
    """Releases below ``directory`` of which every file is to be read: those named, and those that units start from."""

    directory: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class DriverOrder:
    """Packages of the driver, to be taken from the apt repository labelled ``repository`` and no other.

    ``minimum`` and ``bad`` say which versions would not help.
    """

    packages: tuple[str, ...]
    repository: str
    minimum: str
    bad: tuple[str, ...]
    log: str


@dataclass(frozen=True)
class Author:
    """Who changes a host: sparkfleet's revision, and the person on the control machine."""

    revision: str
    user: str


# --- what the agent is asked to look at --------------------------------------------------------------------------


@dataclass(frozen=True)
class DiskNeed:
    """Room that a change would take below ``path``; ``unless`` names a release or model that makes it unnecessary."""

    path: str
    size: int
    what: str
    unless: str


@dataclass(frozen=True)
class BadDriver:
    """A driver that must not serve, and why."""

    version: str
    why: str


@dataclass(frozen=True)
class Requirements:
    """What preflight asks of a machine before anything is changed.

    ``driver_minimum_of`` says who asks for that driver, ``driver_command`` installs one, ``compiles``: an engine builds
    kernels on the host.
    """

    compute_capability: str
    architecture: str
    driver_minimum: str
    driver_minimum_of: str
    driver_newest_known: str
    drivers_bad: tuple[BadDriver, ...]
    driver_command: str
    compiles: bool
    python: str
    systemd_minimum: int
    memory: int
    disk: tuple[DiskNeed, ...]
    clock_skew: float
    ports: tuple[int, ...] = ()


@dataclass(frozen=True)
class Glance:
    """A set of weights as far as it can be seen without reading it.

    Where ``files`` is empty, the receipt says which they are, if it is about this ``repository`` and ``revision``.
    """

    model: str
    path: str
    files: tuple[WeightFile, ...]
    repository: str = ""
    revision: str = ""


# --- rules: what is judged, as data ------------------------------------------------------------------------------

Operator = Literal[
    "is", "is_not", "in", "not_in", "below", "above", "older", "newer", "matches", "has", "lacks", "empty", "unknown"
]


@dataclass(frozen=True)
class Clause:
    """``fact`` is a path like ``gpu.driver``; ``value`` a plain JSON value, or ``$`` and the path of another fact."""

    fact: str
    operator: Operator
    value: Any


@dataclass(frozen=True)
class Condition:
    """True when every one of ``clauses`` is, and one of ``any`` unless that is empty.

    A fact that is unknown decides nothing.
    """

    clauses: tuple[Clause, ...]
    any: tuple["Condition", ...] = ()


@dataclass(frozen=True)
class Rule:
    """A known issue. With ``each``, the path of a list, it is asked of every member, which the texts call ``each``.

    ``what`` and ``remedy`` are for a person; they may name facts in braces.
    """

    id: str
    severity: Severity
    each: str | None
    when: Condition
    what: str
    remedy: str


@dataclass(frozen=True)
class Guard:
    """What must be true when a unit starts, as its ``RECIPE.guard`` on the host says.

    ``release`` is its directory. ``memory``: bytes that must be available, by ``arithmetic``. ``utilization``: the
    share of MemTotal that the engine asks for; 0: it does not. ``rules`` are those on GPU and driver that stop a
    deploy, with what they compare.
    """

    recipe: str
    release: str
    weights: Glance
    memory: int
    arithmetic: str
    utilization: float
    port: int
    vocabularies: Vocabularies
    rules: tuple[Rule, ...]
    compute_capability: str
    driver_minimum: str
    driver_minimum_of: str
    driver_command: str
    drivers_bad: tuple[BadDriver, ...]


@dataclass(frozen=True)
class Question:
    """Everything the agent must look at to answer with one observed state.

    ``serving``: recipes whose engines are asked what they are doing, and whose processes are compared with their
    units; a deploy asks none. ``removal``: what it would come to is told.
    """

    now: float
    adopt: bool
    author: Author
    requirements: Requirements
    rules: tuple[Rule, ...]
    account: Account
    directories: tuple[str, ...]
    files: tuple[str, ...]
    releases: str
    vocab: Vocabularies
    wheels: str
    models: tuple[Glance, ...]
    units: tuple[str, ...]
    serving: tuple[Expectation, ...] = ()
    removal: RemovalOrder | None = None


# --- what is true ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Finding:
    """Something about a machine that stops a deploy or deserves a warning."""

    rule: str
    severity: Severity
    what: str
    remedy: str


@dataclass(frozen=True)
class AccountState:
    uid: int
    gid: int
    home: str
    missing_groups: tuple[str, ...]


@dataclass(frozen=True)
class PathState:
    """A file or directory as it is; ``sha256`` only of regular files."""

    kind: Literal["file", "directory", "other"]
    owner: str
    group: str
    mode: int
    sha256: str | None = None
    mtime: float = 0.0


@dataclass(frozen=True)
class ReleaseState:
    """A release on the host. Only a sealed one may be used; ``problem`` says why it must be built again, ``waiting``
    that this was done and that it is to be patched and sealed. ``built`` is when it was sealed, ``size`` in bytes;
    ``users`` are the units that are started from it.
    """

    name: str
    sealed: bool
    problem: str = ""
    built: float = 0.0
    waiting: bool = False
    size: int = 0
    users: tuple[str, ...] = ()


@dataclass(frozen=True)
class WeightsState:
    """``problem`` names the first file that is not as the manifest wants it; ``changed`` is the newest file's time.

    ``there``: bytes that need not come any more.
    """

    model: str
    problem: str
    changed: float = 0.0
    there: int = 0


@dataclass(frozen=True)
class UnitState:
    """A unit as systemd sees it; ``digest`` is what its running process was started from."""

    name: str
    load: str
    active: str
    sub: str
    enabled: str
    result: str
    pid: int
    invocation: str
    started: float
    digest: str
    needs_reload: bool


@dataclass(frozen=True)
class Verified:
    """The last verification of a recipe, bound to one start of its unit by ``invocation``.

    ``tokens_per_second``: decode speed of one stream. ``note``: what it means, or why it was not judged.
    """

    recipe: str
    invocation: str
    passed: bool
    reason: str
    question: str
    answer: str
    tokens_per_second: float
    at: float
    note: str = ""


@dataclass(frozen=True)
class Live:
    """A recipe at this moment. ``silence``: why its engine, which systemd holds for active, does not serve.
    ``difference``: how what runs differs from what its unit starts. ``running`` and ``waiting`` are requests,
    ``kv_use`` is the share of the KV cache in use.
    """

    recipe: str
    silence: str = ""
    difference: str = ""
    running: int | None = None
    waiting: int | None = None
    kv_use: float | None = None


@dataclass(frozen=True)
class Receipt:
    """What of ours is on the host, as the receipt there says; ``suspects`` are starts from files somebody edited."""

    schema: int
    revision: str
    user: str
    changed_at: float
    units: tuple[str, ...] = ()
    suspects: tuple[str, ...] = ()


@dataclass(frozen=True)
class Served:
    """What a host served when all of it was verified: generation and release of each unit, and what was asked.

    ``left``: the generations that the host was taken back to it from; None where it was deployed.
    """

    at: float
    units: dict[str, str]
    releases: dict[str, str]
    expectations: tuple[Expectation, ...]
    left: dict[str, str] | None = None


@dataclass(frozen=True)
class Observed:
    """The whole observed state of one host. ``vocab`` says what is wrong with its vocabularies, if anything is.
    ``served`` are the sets to go back to, oldest first; ``current`` is the generation of each unit that is laid down.
    ``wheels`` are missing releases that all wheels are there for. ``live`` is empty and ``removal`` is
    None where nobody asked for it.
    """

    schema: int
    agent: str
    machine: Machine
    findings: tuple[Finding, ...]
    receipt: Receipt | None
    account: AccountState | None
    paths: dict[str, PathState] = field(default_factory=dict)
    releases: tuple[ReleaseState, ...] = ()
    vocab: str = ""
    weights: tuple[WeightsState, ...] = ()
    units: tuple[UnitState, ...] = ()
    verified: tuple[Verified, ...] = ()
    served: tuple[Served, ...] = ()
    current: dict[str, str] = field(default_factory=dict)
    wheels: tuple[str, ...] = ()
    live: tuple[Live, ...] = ()
    removal: Removal | None = None

    @property
    def blocked(self) -> bool:
        """Whether preflight found something that must stop a deploy before anything is changed."""
        return any(finding.severity == "stop" for finding in self.findings)
