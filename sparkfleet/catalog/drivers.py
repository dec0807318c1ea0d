"""The driver policy, as ``catalog/drivers.yaml``."""

from functools import cache
from typing import Annotated

from packaging.version import Version as _Version
from pydantic import Field, StringConstraints, model_validator

from sparkfleet.catalog.yaml import CATALOG, Strict, load

Version = Annotated[str, StringConstraints(pattern=r"^\d+(\.\d+)+$")]
Package = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9+.-]+$")]
Line = Annotated[str, StringConstraints(pattern=r"^[^\r\n{}]+$")]


class Good(Strict):
    """A driver that was seen to serve, and by whom."""

    version: Version
    source: Line


class Bad(Strict):
    """A driver that must not serve, and why."""

    version: Version
    why: Line
    source: Line


class Drivers(Strict):
    """Which drivers may serve; ``why`` says what the minimum mends.

    ``packages`` are what ``driver_policy: install`` installs, from the apt repository labelled ``repository`` only.
    """

    minimum: Version
    why: str
    source: str
    known_good: tuple[Good, ...] = Field(min_length=1)
    known_bad: tuple[Bad, ...] = ()
    packages: tuple[Package, ...] = Field(min_length=1)
    repository: str = Field(min_length=1)

    @model_validator(mode="after")
    def _whole(self) -> "Drivers":
        bad = {one.version for one in self.known_bad}
        if both := sorted(bad & {one.version for one in self.known_good}):
            raise ValueError(f"{', '.join(both)}: both good and bad")
        if not any(one.startswith("nvidia-driver-") for one in self.packages):
            raise ValueError("packages: expected one nvidia-driver-... among them")
        if _Version(self.newest_known) < _Version(self.minimum):
            raise ValueError("known_good: expected one that is not older than the minimum")
        return self

    @property
    def newest_known(self) -> str:
        """The newest driver that was seen to serve."""
        return max((one.version for one in self.known_good), key=_Version)


@cache
def drivers() -> Drivers:
    """The policy. Raises UserError when the file is not valid."""
    return load(CATALOG / "drivers.yaml", Drivers)
