"""What a rule looks at: one recipe on one engine."""

from dataclasses import dataclass
from functools import cached_property

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from sparkfleet.catalog.engines import Engine
from sparkfleet.catalog.recipes import ForEngine, Recipe, Serving
from sparkfleet.catalog.yaml import Document
from sparkfleet.knowledge.known import Known, all_known, known
from sparkfleet.lint.findings import Keys

#: Where a flag comes from that a key of its own says.
_SAID_BY = {"max-model-len": ("context",), "kv-cache-memory-bytes": ("memory", "kv_bytes")}


@dataclass(frozen=True)
class Case:
    """One recipe on one engine. ``api_key``: whether the host gives its engines a key that clients must present."""

    recipe: Recipe
    engine: Engine
    document: Document
    api_key: bool = False

    @cached_property
    def known(self) -> Known | None:
        """What the engine accepts; None when nobody has read it."""
        return known(self.engine.knowledge)

    @cached_property
    def others(self) -> tuple[Known, ...]:
        """What the other engines accept, oldest first."""
        return tuple(one for one in all_known() if one.engine != self.engine.name)

    @cached_property
    def serving(self) -> Serving:
        """The recipe on this engine; for one that it does not name, what it says for all."""
        if self.engine.name in self.recipe.engine_names:
            return self.recipe.on(self.engine.name)
        engines = (*self.recipe.engines, ForEngine(name=self.engine.name))
        return self.recipe.model_copy(update={"engines": engines}).on(self.engine.name)

    @cached_property
    def version(self) -> Version | None:
        """Of the engine's vLLM; None when neither its pins nor its knowledge say."""
        pinned = self.engine.pins.get("vllm")
        return Version(pinned) if pinned else (self.known.version if self.known else None)

    @property
    def title(self) -> str:
        """How a person calls the engine's vLLM."""
        return f"vLLM {self.version.public}" if self.version else self.engine.name

    def within(self, versions: str) -> bool:
        """Whether the engine's vLLM is in a range; not when nobody knows its version."""
        return self.version is not None and SpecifierSet(versions).contains(self.version, prereleases=True)

    def line(self, keys: Keys) -> int:
        """The line of a place: where the recipe says it for this engine, else where it says it for all."""
        keys = _SAID_BY.get(str(keys[1]), keys) if keys[:1] == ("flags",) and len(keys) > 1 else keys
        for index, own in enumerate(self.recipe.engines):
            if own.name == self.engine.name and len(keys) > 1:
                there = own.flags if keys[0] == "flags" else own.environment if keys[0] == "environment" else {}
                if keys[1] in there:
                    return self.document.line("engines", index, *keys)
        return self.document.line(*keys)
