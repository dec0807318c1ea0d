"""What a host or a group changes in a recipe, from inventory data, without a copy of the recipe's file."""

from pydantic import ConfigDict, Field, ValidationError

from sparkfleet.catalog.recipes import (
    Bind,
    Bytes,
    Driver,
    FlagName,
    FlagValue,
    Gib,
    Line,
    Port,
    Recipe,
    Seconds,
    ServedAs,
    Speed,
    Strict,
    Tokens,
    Variable,
)
from sparkfleet.errors import UserError


class _Values(Strict):
    # Values come from Python, where "8001" for 8001 is a mistake and not a way of writing.
    model_config = ConfigDict(strict=True)


class MemoryValues(_Values):
    """As the recipe's ``memory``; what is not given stays."""

    weights: Gib | None = None
    kv_bytes: Bytes | None = None
    overhead: Gib | None = None
    start_spike: Gib | None = None


class DecodeValues(_Values):
    """What a host may expect else: the speed below which something is wrong."""

    floor: Speed | None = None


class Overrides(_Values):
    """Single keys of one recipe; what is not given stays. A flag or variable of value None is not given there."""

    served_as: ServedAs | None = None
    port: Port | None = None
    bind: Bind | None = None
    context: Tokens | None = None
    flags: dict[FlagName, FlagValue | None] = Field(default_factory=dict)
    environment: dict[Variable, Line | None] = Field(default_factory=dict)
    memory: MemoryValues = MemoryValues()
    driver_minimum: Driver | None = None
    start_timeout: Seconds | None = None
    decode: DecodeValues = DecodeValues()


def overridden(recipe: Recipe, changes: Overrides) -> Recipe:
    """``recipe`` with ``changes``, which win over what it says for all engines and for one.

    Raises UserError when the result is no valid recipe.
    """
    content = recipe.model_dump()
    content |= changes.model_dump(exclude_none=True, exclude={"flags", "environment", "memory", "decode"})
    content["memory"] |= changes.memory.model_dump(exclude_none=True)
    if floor := changes.decode.floor:
        if recipe.decode is None:
            raise UserError(f"recipe_overrides.{recipe.name}.decode.floor: the recipe says no speed to compare with.")
        content["decode"] |= {"floor": floor}
    for engine in content["engines"]:
        engine["flags"] |= changes.flags
        engine["environment"] |= changes.environment
    try:
        return Recipe.model_validate(content)
    except ValidationError as error:
        said = "; ".join(one["msg"].removeprefix("Value error, ") for one in error.errors())
        raise UserError(f"recipe_overrides.{recipe.name}: {said}.") from None
