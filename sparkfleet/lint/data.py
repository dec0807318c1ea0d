"""What rules know beyond the engines' own knowledge: ``catalog/lint/``."""

from functools import cache
from typing import Annotated

from pydantic import Field, model_validator

from sparkfleet.catalog.patches import Range
from sparkfleet.catalog.yaml import CATALOG, Strict, load

DATA = CATALOG / "lint"

Text = Annotated[str, Field(min_length=1)]


class Idle(Strict):
    """On which vLLM a variable does nothing, why, and what does it instead."""

    versions: Range
    why: Text
    instead: Text


class Foreign(Strict):
    """A variable that vLLM's table does not have; ``name`` may end in ``*``. ``by``: who reads it."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*\*?$")]
    by: Text
    what: Text
    idle: tuple[Idle, ...] = ()

    def covers(self, name: str) -> bool:
        """Whether it is that variable."""
        return name.startswith(self.name[:-1]) if self.name.endswith("*") else name == self.name


class _Variables(Strict):
    variables: tuple[Foreign, ...]


class Forked(Strict):
    """A name that only a fork of vLLM knows; ``engines``: those made from it."""

    variable: str = ""
    flag: str = ""
    fork: Text
    engines: tuple[str, ...]
    instead: Text
    source: Text

    @model_validator(mode="after")
    def _one(self) -> "Forked":
        if bool(self.variable) == bool(self.flag):
            raise ValueError("give one of variable and flag")
        return self

    def strange_to(self, engine: str) -> bool:
        """Whether an engine is none of those made from the fork."""
        return engine not in self.engines


class _Forks(Strict):
    forks: tuple[Forked, ...]


class Setting(Strict):
    """A flag or variable that says which kernel to take; ``values``: those that do, when not all of them."""

    flag: str = ""
    variable: str = ""
    values: tuple[str, ...] = ()


class Taken(Strict):
    """What a range of releases takes when nothing is said, why that is wrong, and what says otherwise."""

    versions: Range
    takes: Text
    why: Text
    accepted: Annotated[tuple[Setting, ...], Field(min_length=1)]
    remedy: Text
    source: Text


class Choice(Strict):
    """Layers of one weight format whose kernel has to be chosen."""

    layers: Text
    format: Text
    experts: bool
    cases: tuple[Taken, ...]


class _Kernels(Strict):
    choices: tuple[Choice, ...]


@cache
def foreign() -> tuple[Foreign, ...]:
    """Every known variable that is not vLLM's own; a full name comes before a beginning. Raises UserError."""
    found = load(DATA / "variables.yaml", _Variables).variables
    return tuple(sorted(found, key=lambda one: (one.name.endswith("*"), -len(one.name))))


@cache
def forks() -> tuple[Forked, ...]:
    """Every name that only a fork knows. Raises UserError."""
    return load(DATA / "forks.yaml", _Forks).forks


@cache
def kernels() -> tuple[Choice, ...]:
    """Every layer whose kernel has to be chosen. Raises UserError."""
    return load(DATA / "kernels.yaml", _Kernels).choices
