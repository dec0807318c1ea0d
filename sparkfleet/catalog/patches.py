"""The patch catalog: one YAML file a patch, what it cures, for which versions, and how it is told from its cure.

Sources of the facts are in the files themselves (``evidence``). What is here is the form: what a file may say, and that
it says nothing that could not work.
"""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from sparkfleet.catalog.yaml import CATALOG, load
from sparkfleet.errors import UserError

Class = Literal["required", "optional", "not-needed", "refused"]


def _specifier(text: str) -> str:
    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        raise ValueError("expected a version range as pip reads it, like '>=0.20,<0.22'") from None
    return text


def _relative(path: str) -> str:
    # The agent searches a RECORD for the path at the start of a line, so it must be one that is never quoted there.
    if not path.isascii() or not path.isprintable() or any(c in path for c in ',"\\ '):
        raise ValueError("expected a plain path: printable ASCII without spaces, commas, quotes or backslashes")
    parts = path.split("/")
    if not path.endswith(".py") or any(part in ("", ".", "..") for part in parts):
        raise ValueError("expected a path of a .py file relative to site-packages")
    return path


def _normal(name: str) -> str:
    if not name or name != name.lower() or any(not (c.isascii() and (c.isalnum() or c == "-")) for c in name):
        raise ValueError("expected a distribution's normalised name, like 'flashinfer-python'")
    return name


Range = Annotated[str, AfterValidator(_specifier)]
Name = Annotated[str, AfterValidator(_normal)]
RelativePath = Annotated[str, AfterValidator(_relative)]
Text = Annotated[str, Field(min_length=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Edit(_Strict):
    """Replace ``old``, which must be there exactly once, by ``new``."""

    old: Text
    new: Text

    @model_validator(mode="after")
    def _reversible(self) -> "Edit":
        if self.old == self.new:
            raise ValueError("old and new are the same")
        if "\r" in self.old + self.new:
            raise ValueError("lines end in a line feed here; files with other line ends are handled by the code")
        return self


class Sign(_Strict):
    """A text by which a file shows that upstream mended it: that it has ``contains``, or no longer has ``lacks``."""

    contains: Text | None = None
    lacks: Text | None = None
    why: Text

    @model_validator(mode="after")
    def _one(self) -> "Sign":
        if (self.contains is None) == (self.lacks is None):
            raise ValueError("give one of contains and lacks")
        return self


class Target(_Strict):
    """Where the code is in a range of versions. Ranges may be wider than they need be: the text decides.

    ``when``: text that the file has if it is the one meant. Without ``edits`` it is only read, for its signs.
    """

    distributions: Annotated[list[Name], Field(min_length=1)]
    versions: Range
    path: RelativePath
    when: str = ""
    edits: list[Edit] = []
    upstreamed: list[Sign] = []


class Precedence(_Strict):
    """Every file that both distributions own must be the ``winner``'s."""

    winner: Name
    loser: Name
    versions: Range


class Settled(_Strict):
    """What versions of a distribution alone decide."""

    distribution: Name
    versions: Range
    state: Literal["upstreamed", "not-applicable"]
    reason: Text


class Standing(_Strict):
    """The class of a patch in a range of versions, and why it is of that class."""

    versions: Range
    class_: Class = Field(alias="class")
    reason: Text


class Probe(_Strict):
    """Python run with the release's interpreter after a change: ends normally when the patch does what it should."""

    code: Text
    environment: dict[str, str] = {}


class Patch(_Strict):
    """One semantic change. ``guard`` says how other GPUs are left as they were."""

    id: Annotated[str, Field(pattern=r"^P[0-9]{1,2}[a-z]?$")]
    title: Text
    symptom: Text
    standing: Annotated[list[Standing], Field(min_length=1)]
    guard: Text
    write_ups: Text
    link: Annotated[str, Field(pattern=r"^https://\S+$")]
    evidence: Annotated[list[Text], Field(min_length=1)]
    targets: list[Target] = []
    precedence: Precedence | None = None
    settled: list[Settled] = []
    probe: Probe | None = None

    @model_validator(mode="after")
    def _something_to_do(self) -> "Patch":
        if bool(self.targets) == bool(self.precedence):
            raise ValueError("give either targets or precedence")
        try:
            compile(self.probe.code if self.probe else "", "probe", "exec")
        except (SyntaxError, ValueError) as error:
            raise ValueError(f"the probe is not Python: {error}") from None
        return self

    @property
    def distributions(self) -> tuple[str, ...]:
        """Every distribution that the patch speaks of, in its own order."""
        names = [name for target in self.targets for name in target.distributions]
        if self.precedence:
            names += [self.precedence.loser, self.precedence.winner]
        names += [settled.distribution for settled in self.settled]
        return tuple(dict.fromkeys(names))


def covers(versions: str, version: str) -> bool:
    """Whether a range covers a version, pre-releases and local builds included.

    Raises UserError when ``version`` is none.
    """
    try:
        return SpecifierSet(versions).contains(Version(version), prereleases=True)
    except InvalidVersion:
        raise UserError(f"{version!r} is not a version; expected something like 0.20.1 or 0.20.1+cu130.") from None


def load_patches(directory: Path | None = None) -> tuple[Patch, ...]:
    """Every patch of a directory (by default the catalog's own), in the order of their numbers.

    Raises UserError with file, line and key of what is wrong.
    """
    return _read_all(directory) if directory else _own()


@cache
def _own() -> tuple[Patch, ...]:
    """The catalog's own, read once a run: every host of an inventory is planned with them."""
    return _read_all(CATALOG / "patches")


def _read_all(directory: Path) -> tuple[Patch, ...]:
    patches = [_named(path) for path in sorted(directory.glob("*.yaml"))]
    if not patches:
        raise UserError(f"{directory}: no patch file (*.yaml) there; expected the patch catalog.")
    return tuple(sorted(patches, key=lambda patch: order(patch.id)))


def order(identity: str) -> tuple[int, str]:
    """Sort key of a patch id: P2 before P10, P4a before P4b."""
    digits = identity[1:].rstrip("abcdefghijklmnopqrstuvwxyz")
    return int(digits), identity[1 + len(digits) :]


def known(patches: Iterable[Patch], identities: Iterable[str]) -> tuple[str, ...]:
    """``identities``, each of which must name a patch.

    Raises UserError naming those that do not, and what there is.
    """
    there = [patch.id for patch in patches]
    wanted = tuple(dict.fromkeys(identities))
    if unknown := [identity for identity in wanted if identity not in there]:
        raise UserError(f"unknown patch {', '.join(unknown)}; there are {', '.join(there)}.")
    return wanted


def _named(path: Path) -> Patch:
    patch = load(path, Patch)
    if path.name.split("-")[0].removesuffix(".yaml") != patch.id:
        raise UserError(f"{path}: holds patch {patch.id}; a file is named after its patch, like {patch.id}-words.yaml.")
    return patch
