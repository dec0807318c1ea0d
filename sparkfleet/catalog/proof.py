"""What a served model is proved with: prompts, journal lines, and why it may be slow (``catalog/proof.yaml``)."""

import re
from functools import cache
from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

from sparkfleet.catalog.yaml import CATALOG, Strict, load


def _regular(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"expected a regular expression ({error})") from None
    return text


Said = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Pattern = Annotated[str, StringConstraints(min_length=1), AfterValidator(_regular)]
Tokens = Annotated[int, Field(gt=0, le=32_768)]


class Prompt(Strict):
    """Something to ask at temperature 0. ``expect``: a regular expression that a right answer contains."""

    name: Said
    ask: Said
    system: Said | None = None
    expect: Pattern | None = None
    max_tokens: Tokens | None = None
    stream: bool = False


class Canary(Strict):
    """What is asked after a start. ``prompts``: instead of those of ``catalog/proof.yaml``.

    ``max_tokens``: the limit of an answer whose prompt has none of its own; a model that thinks first needs more.
    ``speed_tokens``: the length of the answer that speed is measured with.
    """

    prompts: tuple[Prompt, ...] = ()
    max_tokens: Tokens = 256
    speed_tokens: Annotated[int, Field(ge=2, le=1000)] = 200


class Forbidden(Strict):
    """A line that is in no good journal, what it means, and who says so."""

    pattern: Pattern
    meaning: Said
    source: Said


class Proof(Strict):
    """The file."""

    prompts: tuple[Prompt, ...] = Field(min_length=1)
    journal: tuple[Forbidden, ...]
    slow: tuple[Said, ...]


@cache
def proof() -> Proof:
    """What holds for every recipe. Raises UserError with file and line of what is wrong."""
    return load(CATALOG / "proof.yaml", Proof)
