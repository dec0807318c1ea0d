"""The driver policy, as ``catalog/drivers.yaml``."""

from pydantic import BaseModel, ConfigDict, Field

from sparkfleet.catalog.yaml import CATALOG, load


class Drivers(BaseModel):
    """Which drivers may serve; ``why`` says what the minimum mends."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    minimum: str = Field(pattern=r"^\d+(\.\d+)+$")
    why: str
    source: str


def drivers() -> Drivers:
    """The policy. Raises UserError when the file is not valid."""
    return load(CATALOG / "drivers.yaml", Drivers)
