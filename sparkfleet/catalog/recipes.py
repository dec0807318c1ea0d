"""Recipes: one way to serve one model, as ``catalog/recipes/<name>.yaml``."""

from difflib import get_close_matches
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from sparkfleet.catalog.yaml import CATALOG, load
from sparkfleet.errors import UserError

RECIPES = CATALOG / "recipes"

#: Text that becomes part of a unit or environment file, where a line break would begin another setting.
Line = Annotated[str, StringConstraints(pattern=r"^[^\r\n\x00]*$")]
Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
FlagName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]*$")]

FlagValue = bool | int | float | Line


def _inside(name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or name != str(path):
        raise ValueError("expected a plain path inside the model's directory")
    return name


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class File(_Strict):
    """One file of the model: its bytes are known before it is fetched."""

    name: Annotated[str, AfterValidator(_inside)]
    size: int = Field(ge=0, description="bytes")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class Model(_Strict):
    """Which model, and every file of it."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$", description="directory below the models directory")
    files: tuple[File, ...] = Field(min_length=1)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


class Memory(_Strict):
    """GiB that serving takes; what a host must have is the sum and the reserve of the operating system."""

    weights: float = Field(ge=0)
    kv: float = Field(ge=0)
    overhead: float = Field(ge=0)
    start_spike: float = Field(ge=0)

    @property
    def total(self) -> float:
        """GiB in all, at the worst moment."""
        return self.weights + self.kv + self.overhead + self.start_spike


class Canary(_Strict):
    """What is asked after a start, at temperature 0."""

    question: str
    max_tokens: int = Field(gt=0, le=1000)


class Recipe(_Strict):
    """One way to serve one model. ``engines`` are those it is for, the preferred one first."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    title: Line
    engines: tuple[str, ...] = Field(min_length=1)
    model: Model
    served_as: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/:-]*$")
    port: int = Field(ge=1024, le=65535)
    flags: dict[FlagName, FlagValue]
    environment: dict[Variable, Line] = {}
    memory: Memory
    start_timeout: int = Field(gt=0, description="seconds; the first start compiles")
    canary: Canary
    evidence: str


def recipe(name: str) -> Recipe:
    """The recipe ``name``. Raises UserError naming those that there are."""
    known = sorted(path.stem for path in RECIPES.glob("*.yaml"))
    if name not in known:
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known)}."
        raise UserError(f"recipe {name!r} is not in {RECIPES}; {hint}")
    path = RECIPES / f"{name}.yaml"
    found = load(path, Recipe)
    _check_name(path, found)
    return found


def _check_name(path: Path, found: Recipe) -> None:
    if found.name != path.stem:
        raise UserError(f"{path}: name: expected {path.stem!r} as the file is called, found {found.name!r}.")
