"""A systemd unit and an environment file for each recipe; active only once the engine answers with its model."""

from roles._lib.operations import converge as _converge
from sparkfleet.agent.shapes import ServiceOrder
from sparkfleet.changes import retired


def converge() -> None:
    """The units of this host's recipes serve; those of recipes taken off it are gone."""
    _converge(
        "service",
        "units serve",
        lambda wanted, run: [ServiceOrder(wanted.units, retired(wanted, run.seen) if run.seen else ())],
    )
