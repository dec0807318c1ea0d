"""Engines: a vLLM with its exact dependency closure, as ``catalog/engines/<name>.yaml`` and its lock."""

import re
from hashlib import sha256
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from sparkfleet.catalog.yaml import CATALOG, load
from sparkfleet.errors import UserError

ENGINES = CATALOG / "engines"

_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


class Engine(BaseModel):
    """One engine. ``unpacked`` is what a release of it takes on disk, byte-compiled, in GB."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    title: str
    python: tuple[str, ...] = Field(min_length=1, description="minor versions of CPython that it has wheels for")
    unpacked: float = Field(gt=0, description="GB")
    lock_is_completed_by_wheelhouse: bool = False
    gpu: bool = Field(default=True, description="whether it runs on the GPU; the lab's engine does not")
    patches: tuple[str, ...] = ()
    notes: str = ""

    @property
    def lock(self) -> Path:
        """The hash-locked closure, in the requirements format."""
        return ENGINES / f"{self.name}.lock"


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
    """The pinned uv, from ``uv.lock``. Raises UserError when that file is not one pin with hashes."""
    path = ENGINES / "uv.lock"
    text = path.read_text(encoding="utf-8")
    found = re.search(r"^uv==(\S+)", text, re.MULTILINE)
    hashes = tuple(_HASH.findall(text))
    if not found or not hashes:
        raise UserError(f"{path}: expected one line `uv==VERSION` with its hashes.")
    return Uv(version=found[1], hashes=hashes)


def digest(lock: str, patches: str, python: str) -> str:
    """What makes a release what it is: lock, patch set and Python version, as 12 hexadecimal digits."""
    whole = "\0".join((lock, patches, python))
    return sha256(whole.encode()).hexdigest()[:12]
