"""The knowledge of an engine, read back: what its vLLM accepts, and whether another release accepts it."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sparkfleet.catalog.engines import ENGINES
from sparkfleet.errors import UserError
from sparkfleet.knowledge import SCHEMA


class _Plain(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Variable(_Plain):
    """An environment variable, as ``sparkfleet.knowledge.environment`` describes it."""

    type: Literal["bool", "int", "float", "str"] | None = None
    choices: tuple[str, ...] | None = None
    case: Literal["any"] | None = None
    many: bool = False
    deprecated: str = ""
    true: tuple[str, ...] = ()


class Flag(_Plain):
    """A flag, as ``sparkfleet.knowledge.flags`` describes it."""

    type: Literal["switch", "bool", "json", "int", "float", "str"]
    choices: tuple[str | int | float, ...] | None = None
    open: bool = False
    loose: bool = False
    many: bool = False
    keys: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    deprecated: bool = False


class Parsers(_Plain):
    """Names of registered parsers, by kind."""

    reasoning: tuple[str, ...]
    tool: tuple[str, ...]


class Wheel(_Plain):
    """The wheel that the knowledge was read from."""

    name: str
    sha256: str


class Known(_Plain):
    """All that is known of one engine. ``flags`` by their names without the dashes in front."""

    schema_: Literal[2] = Field(alias="schema")
    engine: str
    wheel: Wheel
    environment: Mapping[str, Variable]
    flags: Mapping[str, Flag]
    parsers: Parsers

    @property
    def version(self) -> Version:
        """Of its vLLM."""
        return parse_wheel_filename(self.wheel.name)[1]

    @property
    def title(self) -> str:
        """How a person calls it: ``vLLM 0.23.0``."""
        return f"vLLM {self.version.public}"

    def flag(self, name: str) -> tuple[str, Flag] | None:
        """The flag of that name, or of which it is another name or the ``no-`` form, with its own name."""
        for own, flag in self.flags.items():
            if name == own or f"--{name}" in flag.aliases or (flag.type == "bool" and name == f"no-{own}"):
                return own, flag
        return None


def known(path: Path) -> Known | None:
    """The knowledge in a file; None when there is no such file.

    Raises UserError when it is not of the form that this program makes.
    """
    try:
        return _read(path, path.stat().st_mtime_ns)
    except FileNotFoundError:
        return None


@cache
def _read(path: Path, changed: int) -> Known:
    """``changed``: when the file was, so that another one is read anew."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        content["flags"] = {name.removeprefix("--"): flag for name, flag in content["flags"].items()}
        found = Known.model_validate(content)
        parse_wheel_filename(found.wheel.name)
        return found
    except (OSError, ValueError, TypeError, KeyError, AttributeError, InvalidWheelFilename) as error:
        what = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        engine = path.name.removesuffix(".knowledge.json")
        raise UserError(
            f"{path}: not knowledge of schema {SCHEMA} ({what}). Make it anew with `sparkfleet lock {engine}`."
        ) from None


@cache
def all_known() -> tuple[Known, ...]:
    """The knowledge of every engine of the catalog that has any, oldest vLLM first. Raises UserError."""
    found = [one for path in sorted(ENGINES.glob("*.knowledge.json")) if (one := known(path))]
    return tuple(sorted(found, key=lambda one: (one.version, one.engine)))
