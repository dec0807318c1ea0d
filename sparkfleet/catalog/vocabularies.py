"""The vocabularies of gpt-oss, as ``catalog/vocabularies.yaml``: their bytes, and where they come from."""

from functools import cache
from hashlib import sha1
from typing import Annotated

from pydantic import Field, StringConstraints

from sparkfleet.catalog.yaml import CATALOG, Strict, load

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class Vocabulary(Strict):
    """One file of tokens, each in base64 with its rank; ``size`` in bytes."""

    name: str = Field(pattern=r"^[a-z0-9_]+\.tiktoken$")
    url: str = Field(pattern=r"^https://")
    size: int = Field(gt=0)
    sha256: Sha256

    @property
    def cache_name(self) -> str:
        """What tiktoken and openai-harmony call it in their cache: the SHA-1 of its address."""
        return sha1(self.url.encode(), usedforsecurity=False).hexdigest()


class Wheel(Strict):
    """A wheel that has every vocabulary in it."""

    distribution: str
    version: str
    sha256: Sha256


class Vocabularies(Strict):
    vocabularies: tuple[Vocabulary, ...] = Field(min_length=1)
    wheel: Wheel


@cache
def catalog() -> Vocabularies:
    """All of them. Raises UserError when the file is not valid."""
    return load(CATALOG / "vocabularies.yaml", Vocabularies)
