"""Recipes: one way to serve one model, as ``catalog/recipes/<name>.yaml`` or a file of the user's own.

What a recipe says once holds on every engine it is for; what an engine needs differently stands with that engine.
``Recipe.on`` brings both together, and everything that follows takes its answer.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from ipaddress import ip_address
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, StringConstraints, model_validator

from sparkfleet.catalog.proof import Canary
from sparkfleet.catalog.yaml import CATALOG, read
from sparkfleet.errors import UserError

RECIPES = CATALOG / "recipes"
OWN = CATALOG.parent / "recipes"
"""Where users of a checkout put recipes of their own, unless they name another directory."""

GIB = 1024**3

NOT_SHOWN = "none on GB10"
"""How ``evidence`` begins where nobody has shown a recipe on a Spark."""

UNPINNED = "unpinned"

#: Text that becomes part of a unit or environment file, where a line break would begin another setting.
Line = Annotated[str, StringConstraints(pattern=r"^[^\r\n\x00]*$")]
Said = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
#: Becomes part of names of files and units, which have 255 bytes at the most.
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=128)]


def _not_ours(name: str) -> str:
    if name.startswith("SPARKFLEET_"):
        raise ValueError("expected a variable of the engine; SPARKFLEET_ is how a unit's process is told from others")
    return name


Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$"), AfterValidator(_not_ours)]

FlagValue = bool | int | float | Line | dict[str, JsonValue]

#: Flags that a recipe does not give, because a key of its own says the same once and for everything that needs it.
RESERVED: Mapping[str, str] = {
    "api-key": "a secret has no place in a recipe or on a command line",
    "config": "a file on the host would change what the recipe says",
    "gpu-memory-utilization": "it is derived from `memory`",
    "host": "say `bind`",
    "kv-cache-memory-bytes": "say `memory.kv_bytes`",
    "max-model-len": "say `context`",
    "model": "say `model`",
    "port": "say `port`",
    "revision": "say `model.revision`",
    "served-model-name": "say `served_as`",
}


def _inside(name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or name != str(path) or name == ".":
        raise ValueError("expected a plain path inside the model's directory")
    return name


def _free(name: str) -> str:
    if name in RESERVED:
        raise ValueError(f"not a flag for a recipe: {RESERVED[name]}")
    return name


def _address(text: str) -> str:
    try:
        ip_address(text)
    except ValueError:
        raise ValueError("expected an address of the host, like 127.0.0.1 or 0.0.0.0") from None
    return text


FlagName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]*$"), AfterValidator(_free)]
Port = Annotated[int, Field(ge=1024, le=65535)]
Bind = Annotated[str, AfterValidator(_address)]
ServedAs = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/:-]*$")]
Tokens = Annotated[int, Field(gt=0, le=100_000_000)]
Gib = Annotated[float, Field(ge=0, le=4096)]
Bytes = Annotated[int, Field(ge=0, le=4096 * GIB)]
Seconds = Annotated[int, Field(gt=0, le=24 * 3600)]
Speed = Annotated[float, Field(gt=0, le=100_000, description="tokens a second")]
Driver = Annotated[str, StringConstraints(pattern=r"^\d+(\.\d+)+$")]


class Strict(BaseModel):
    """Unknown keys are refused, and numbers are numbers."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class File(Strict):
    """One file of the model: its bytes are known before it is fetched."""

    name: Annotated[str, AfterValidator(_inside)]
    size: int = Field(ge=0, description="bytes")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class Quantization(Strict):
    """How the checkpoint itself is quantised. ``method``: as its config.json says; ``none`` where it says nothing.

    ``unquantized``: what it leaves in 16 bits, in the checkpoint's words; it often decides the speed.
    """

    method: Name
    unquantized: tuple[Said, ...] = ()


class Model(Strict):
    """Which model, and what is known of its files.

    ``name``: its directory below the models directory. ``repository``: on the hub; absent for the lab's own.
    ``files``: the manifest of ``revision``; where nobody has listed it, ``bytes`` says the sum, and ``source`` whence.
    """

    name: Name
    repository: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$")] | None = None
    revision: Annotated[str, StringConstraints(pattern=rf"^([0-9a-f]{{40}}|{UNPINNED})$")] | None = None
    files: tuple[File, ...] = ()
    bytes: Bytes | None = None
    source: Said | None = None
    architecture: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    quantization: Quantization | None = None
    num_nextn_predict_layers: int | None = Field(
        default=None,
        ge=0,
        description="of config.json: what MTP drafts with; 0: it has none; absent: nobody has looked",
    )

    @model_validator(mode="after")
    def _whole(self) -> "Model":
        if (self.repository is None) != (self.revision is None):
            raise ValueError("repository and revision: expected both, or none of them")
        if not self.files and self.bytes is None:
            raise ValueError("expected files (with sizes and hashes), or bytes (their sum) and its source")
        if self.bytes is not None and self.source is None:
            raise ValueError("source: expected where the figure of bytes is from")
        if not self.files and self.repository is None:
            raise ValueError("files: expected, because no repository can say which there are")
        names = [file.name for file in self.files]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"files: {twice} is named twice")
        return self

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files) if self.files else self.bytes or 0

    @property
    def pinned(self) -> bool:
        """Whether it is always the same bytes."""
        return bool(self.files) or (self.revision is not None and self.revision != UNPINNED)


class Memory(Strict):
    """What serving takes, in GiB but for ``kv_bytes``; a host must have the sum and the operating system's reserve."""

    weights: Gib
    kv_bytes: Bytes
    overhead: Gib
    start_spike: Gib

    @property
    def kv(self) -> float:
        """GiB of the KV cache."""
        return self.kv_bytes / GIB

    @property
    def total(self) -> float:
        """GiB in all, at the worst moment."""
        return self.weights + self.kv + self.overhead + self.start_spike


class Decode(Strict):
    """Single-stream speed. ``baseline``: what ``source`` measured, on which engine and driver, in their words.

    ``floor``: below it something is wrong. ``aggregate``: tokens a second over so many clients together.
    """

    baseline: Speed
    source: Said
    engine: Said
    driver: Said | None = None
    floor: Speed | None = None
    ceiling: Speed | None = Field(default=None, description="tokens a second that memory bandwidth allows at the most")
    aggregate: dict[Annotated[int, Field(gt=1)], Speed] = {}

    @model_validator(mode="after")
    def _whole(self) -> "Decode":
        if self.floor is not None and self.floor > self.baseline:
            raise ValueError("floor: expected at most the baseline")
        return self


class Journal(Strict):
    """Texts that some line of the unit's journal contains after a good start, and that none does."""

    required: tuple[Line, ...] = ()
    forbidden: tuple[Line, ...] = ()

    def __or__(self, other: "Journal") -> "Journal":
        return Journal(required=self.required + other.required, forbidden=self.forbidden + other.forbidden)


class Waiver(Strict):
    """A finding of ``sparkfleet lint`` that this recipe lives with, and why that is right here."""

    rule: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    reason: Said


class ForEngine(Strict):
    """What is different on one engine; a flag or variable of value null is not given there.

    ``reason``: why this engine, or why not first. ``evidence``: who has shown the recipe on it on a Spark.
    """

    name: str
    reason: Said | None = None
    evidence: Said = NOT_SHOWN
    flags: dict[FlagName, FlagValue | None] = {}
    environment: dict[Variable, Line | None] = {}
    journal: Journal = Journal()
    why: dict[str, Said] = {}

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value


class Serving(Strict):
    """A recipe on one engine: everything merged. ``flags`` has those that come from keys of their own, too.

    Not in ``flags``: what only a host decides (served name, address, port, memory utilisation).
    """

    engine: str
    flags: dict[str, FlagValue]
    environment: dict[str, str]
    journal: Journal
    why: dict[str, str]
    reason: str | None
    evidence: str


class Recipe(Strict):
    """One way to serve one model. ``engines`` are those it is for, the preferred one first."""

    name: Name
    title: Line
    profile: Literal["chat", "serving"] = Field(
        default="chat", description="chat: few clients, each fast; serving: many clients, most tokens in all"
    )
    engines: tuple[ForEngine, ...] = Field(min_length=1)
    model: Model
    served_as: ServedAs
    port: Port
    bind: Bind = "127.0.0.1"
    context: Tokens = Field(description="tokens of one conversation")
    flags: dict[FlagName, FlagValue] = {}
    environment: dict[Variable, Line] = {}
    journal: Journal = Journal()
    why: dict[str, Said] = {}
    vocabularies: tuple[Literal["o200k_base", "cl100k_base"], ...] = ()
    driver_minimum: Driver | None = None
    memory: Memory
    start_timeout: Seconds = Field(description="seconds; the first start compiles")
    canary: Canary = Canary()
    decode: Decode | None = None
    waivers: tuple[Waiver, ...] = ()
    evidence: Said

    @model_validator(mode="after")
    def _whole(self) -> "Recipe":
        names = self.engine_names
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"engines: {twice} is named twice")
        given = {*self.flags, *self.environment, *Recipe.model_fields, *Memory.model_fields}
        for own in self.engines:
            given |= {*own.flags, *own.environment}
        for name in (name for whys in (self.why, *(own.why for own in self.engines)) for name in whys):
            if name not in given:
                raise ValueError(f"why: {name} is no flag, variable or key that this recipe gives")
        return self

    @property
    def engine_names(self) -> tuple[str, ...]:
        """Every engine it is for, the preferred one first."""
        return tuple(one.name for one in self.engines)

    def on(self, engine: str) -> Serving:
        """How it is served on ``engine``. Raises UserError when it is not for that one."""
        own = next((one for one in self.engines if one.name == engine), None)
        if own is None:
            raise UserError(
                f"recipe {self.name} is not for engine {engine}; it is for: {', '.join(self.engine_names)}."
            )
        fixed = {"max-model-len": self.context, "kv-cache-memory-bytes": self.memory.kv_bytes}
        return Serving(
            engine=engine,
            flags=fixed | {name: value for name, value in {**self.flags, **own.flags}.items() if value is not None},
            environment={k: v for k, v in {**self.environment, **own.environment}.items() if v is not None},
            journal=self.journal | own.journal,
            why={**self.why, **own.why},
            reason=own.reason,
            evidence=own.evidence,
        )


class Verdict(Strict):
    """Why something is not served, and the recipe to take instead."""

    reason: Said
    instead: Name


class KnownBad(Strict):
    """A way to serve a model that people tried and that does not work: in the catalog so that it is not tried again."""

    name: Name
    title: Line
    known_bad: Verdict
    evidence: Said

    def refusal(self) -> str:
        """One paragraph for whoever asks for it."""
        verdict = self.known_bad
        return f"recipe {self.name} is known not to work: {' '.join(verdict.reason.split())} Take {verdict.instead}."


def paths(own: Path | None = None) -> dict[str, Path]:
    """Every recipe there is, by name: the catalog's and those in ``own``.

    Raises UserError when a name is in both.
    """
    found = {path.stem: path for path in sorted(RECIPES.glob("*.yaml"))}
    for path in sorted((own or OWN).glob("*.yaml")):
        if path.stem in found:
            raise UserError(f"{path}: the catalog has a recipe {path.stem} already; give yours another name.")
        found[path.stem] = path
    return found


def path_of(name: str, own: Path | None = None) -> Path:
    """The file of the recipe ``name``. Raises UserError naming those that there are."""
    known = paths(own)
    if name not in known:
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known)}."
        raise UserError(f"recipe {name!r} is not in {RECIPES} or {own or OWN}; {hint}")
    return known[name]


def entry(path: Path) -> Recipe | KnownBad:
    """The recipe, or known-bad entry, in the file ``path``. Raises UserError with file and line of what is wrong."""
    document = read(path)
    bad = isinstance(document.content, dict) and "known_bad" in document.content
    found = document.validate(KnownBad) if bad else document.validate(Recipe)
    if found.name != path.stem:
        raise UserError(
            f"{path}: name: expected {path.stem!r} as the file is called, found {found.name!r}. Call the file "
            f"{found.name}.yaml, or the recipe {path.stem}."
        )
    return found


def recipe(name: str, own: Path | None = None) -> Recipe:
    """The recipe ``name``, from the catalog or the directory ``own``.

    Raises UserError when there is none, when it is not valid, and, with the alternative, when it is known to be bad.
    """
    found = entry(path_of(name, own))
    if isinstance(found, KnownBad):
        raise UserError(found.refusal())
    return found
