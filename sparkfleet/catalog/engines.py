"""Engines: a vLLM with its exact dependency closure, as ``catalog/engines/<name>.yaml`` and its lock."""

import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from sparkfleet.agent import shapes
from sparkfleet.catalog.patches import Name, Range
from sparkfleet.catalog.yaml import CATALOG, Strict, load
from sparkfleet.errors import UserError

ENGINES = CATALOG / "engines"

UNPACKED_PER_WHEEL_BYTE = 3
"""Bytes on disk that a byte of wheel becomes, at the most: 2.1 to 2.3 for the closures of vLLM 0.20.1 to 0.33.0."""

UNKNOWN_WHEEL = 1_000_000_000
"""Bytes that a wheel is taken for when its index does not say: none in the committed locks is larger."""

_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_FILE = re.compile(r"^# (\S+\.whl) (\d+)$", re.MULTILINE)


def _version(text: str) -> str:
    try:
        Version(text)
    except InvalidVersion:
        raise ValueError("expected one exact version, like '2.11.0' or '2.10.0+cu130'") from None
    return text


Exact = Annotated[str, AfterValidator(_version)]


class Target(Strict):
    """The hosts that the lock is for: wheels are chosen for this architecture, C library and CPython and no other."""

    architecture: Literal["aarch64"] = "aarch64"
    glibc: str = Field(default="2.35", pattern=r"^2\.\d+$", description="the newest whose wheels may be taken")
    python: str = Field(default="3.12", pattern=r"^3\.\d+$", description="minor version of CPython")

    @property
    def platform(self) -> str:
        """As uv names it: ``aarch64-manylinux_2_35``."""
        return f"{self.architecture}-manylinux_{self.glibc.replace('.', '_')}"


class Source(Strict):
    """A distribution that the default package index does not have in the form that is needed: the user says where.

    ``kind``: an index (its address) or a wheel (a file). ``what``: what it has to be, in words.
    """

    distribution: Name
    kind: Literal["index", "wheel"]
    what: str = Field(min_length=1)


class Overlap(Strict):
    """Two distributions that own the same paths with different bytes: ``winner`` is installed after ``loser``."""

    winner: Name
    loser: Name
    why: str = Field(min_length=1)

    @property
    def order(self) -> shapes.Overlap:
        """As the agent takes it."""
        return shapes.Overlap(self.winner, self.loser)


class Assertions(Strict):
    """What must hold of a release before it is sealed, told without a GPU; versions always equal the lock.

    ``cuda``: CUDA major of torch and of vLLM's own libraries. ``imports``: modules that need no device.
    """

    cuda: int | None = None
    imports: tuple[str, ...] = ()

    @property
    def order(self) -> shapes.Assertions:
        """As the agent takes it."""
        return shapes.Assertions(self.cuda, self.imports)


class Engine(Strict):
    """One engine. Without ``pins``, its lock is made by something else than ``sparkfleet lock``."""

    name: str
    title: str
    python: tuple[str, ...] = Field(min_length=1, description="minor versions of CPython that its lock is for")
    requires_python: Range = Field(default="", description="range of CPython that vLLM itself declares")
    target: Target = Target()
    pins: Mapping[Name, Exact] = Field(default={}, description="what decides the engine; the lock holds the rest")
    sources: tuple[Source, ...] = ()
    overlaps: tuple[Overlap, ...] = ()
    assertions: Assertions = Assertions()
    driver_minimum: str | None = Field(default=None, pattern=r"^\d+(\.\d+)+$", description="of the CUDA it brings")
    harmony: Literal["openai-harmony", "oss-harmony"] | None = Field(
        default=None, description="which library renders gpt-oss: the first wants vocabulary files, the other has them"
    )
    unpacked: float | None = Field(default=None, gt=0, description="GB on disk, byte-compiled; None: not known")
    unpacked_is: str = Field(default="", description="how ``unpacked`` was found")
    lock_is_completed_by_wheelhouse: bool = False
    gpu: bool = Field(default=True, description="whether it runs on the GPU; the lab's engine does not")
    patches: tuple[str, ...] = Field(default=(), description="beyond those that its versions require")
    notes: str = Field(default="", description="what is known of it, with evidence")

    @model_validator(mode="after")
    def _whole(self) -> "Engine":
        if self.pins and "vllm" not in self.pins:
            raise ValueError("pins: expected vllm among them")
        for source in self.sources:
            if source.distribution not in self.pins:
                raise ValueError(f"sources: {source.distribution} is not pinned")
        if self.pins and self.python != (self.target.python,):
            raise ValueError(f"python: the lock is for {self.target.python} only; found {', '.join(self.python)}")
        if self.requires_python:
            allowed = SpecifierSet(self.requires_python)
            if outside := [one for one in self.python if f"{one}.0" not in allowed]:
                raise ValueError(f"python: {outside[0]} is outside {self.requires_python}")
        return self

    @property
    def lock(self) -> Path:
        """The hash-locked closure, in the requirements format."""
        return ENGINES / f"{self.name}.lock"

    @property
    def knowledge(self) -> Path:
        """What its vLLM accepts: environment variables and flags, generated from the pinned wheel."""
        return ENGINES / f"{self.name}.knowledge.json"

    @property
    def lock_command(self) -> str:
        """The command that makes the lock, with a word in capitals for what only the user can give."""
        if self.lock_is_completed_by_wheelhouse:
            return "python -m lab.wheelhouse --lock"
        given = (f" --source {one.distribution}={'INDEX' if one.kind == 'index' else 'WHEEL'}" for one in self.sources)
        return f"sparkfleet lock {self.name}{''.join(given)}"


class Uv(BaseModel):
    """The uv that builds releases: one version, the hashes of its wheels."""

    model_config = ConfigDict(frozen=True)

    version: str
    hashes: tuple[str, ...]


def engine(name: str) -> Engine:
    """The engine ``name``. Raises UserError naming those that there are."""
    known = sorted(path.stem for path in ENGINES.glob("*.yaml"))
    if name not in known:
        raise UserError(f"engine {name!r} is not in {ENGINES}; there are: {', '.join(known)}.")
    found = load(ENGINES / f"{name}.yaml", Engine)
    if found.name != name:
        raise UserError(f"{ENGINES / name}.yaml: name: expected {name!r} as the file is called, found {found.name!r}.")
    return found


def uv() -> Uv:
    """The pinned uv, from ``uv.txt``. Raises UserError when that file is not one pin with hashes."""
    path = ENGINES / "uv.txt"
    text = path.read_text(encoding="utf-8")
    found = re.search(r"^uv==(\S+)", text, re.MULTILINE)
    hashes = tuple(_HASH.findall(text))
    if not found or not hashes:
        raise UserError(f"{path}: expected one line `uv==VERSION` with its hashes.")
    return Uv(version=found[1], hashes=hashes)


def wheels(lock: str) -> dict[str, int]:
    """File name and bytes of each wheel of a lock that ``sparkfleet lock`` made, from the comments above its pins."""
    return {name: int(size) or UNKNOWN_WHEEL for name, size in _FILE.findall(lock)}


def wheels_size(lock: str) -> int:
    """Bytes to download for a lock, 0 when it does not say."""
    return sum(wheels(lock).values())


def digest(lock: str, patches: str, python: str, overlaps: tuple[Overlap, ...] = ()) -> str:
    """What makes a release what it is: lock, patch set, Python version, who wins what; 12 hexadecimal digits."""
    whole = "\0".join((lock, patches, python, *(f"{one.winner} over {one.loser}" for one in overlaps)))
    return sha256(whole.encode()).hexdigest()[:12]
