"""Architectures: what of a model's ``config.json`` decides its KV cache, as ``catalog/architectures/<name>.yaml``."""

from functools import cache
from pathlib import Path

from pydantic import Field, model_validator

from sparkfleet.catalog.yaml import CATALOG, Strict, load

ARCHITECTURES = CATALOG / "architectures"


class Architecture(Strict):
    """One architecture. ``repositories`` are those of the hub that have it, however their weights are quantised.

    ``config``: keys of ``config.json``, or of its ``text_config``, as they stand there. ``layer_pattern``: where that
    file lists the kind of every layer, the part of the list that repeats.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    repositories: tuple[str, ...] = Field(min_length=1)
    source: str = Field(min_length=1, description="where the figures are from, and when")
    config: dict[str, str | int | float | bool]
    layer_pattern: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _whole(self) -> "Architecture":
        layers = self.config.get("num_hidden_layers")
        if not isinstance(layers, int) or isinstance(layers, bool) or layers < 1:
            raise ValueError("config: expected num_hidden_layers, a whole number")
        if self.layer_pattern and layers % len(self.layer_pattern):
            raise ValueError("layer_pattern: expected that it fits num_hidden_layers a whole number of times")
        return self

    def as_config(self) -> dict[str, object]:
        """The keys as ``config.json`` has them."""
        if not self.layer_pattern:
            return dict(self.config)
        times = int(self.config["num_hidden_layers"]) // len(self.layer_pattern)
        return {**self.config, "layer_types": list(self.layer_pattern) * times}


@cache
def architectures() -> tuple[Architecture, ...]:
    """All of the catalog. Raises UserError for a file that is not valid."""
    return tuple(architecture(path) for path in sorted(ARCHITECTURES.glob("*.yaml")))


def architecture(path: Path) -> Architecture:
    """The architecture in the file ``path``. Raises UserError with file and line of what is wrong."""
    return load(path, Architecture)


def of_repository(repository: str | None) -> Architecture | None:
    """The architecture of a repository of the hub; None where nobody has written it down."""
    wanted = (repository or "").lower()
    return next((one for one in architectures() if wanted in map(str.lower, one.repositories)), None)
