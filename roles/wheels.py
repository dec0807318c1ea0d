"""The wheels of a release that is to be built: brought to the host, unless it has a wheelhouse of its own.

Each is fetched from the internet once a run at the most, whatever the number of hosts: by the control machine, which
hands it to them while the run lasts. Every byte is checked against the lock when it arrives.
"""

from collections.abc import Iterator
from dataclasses import replace

from roles._lib import wheel_sources
from roles._lib.facts import Run
from roles._lib.operations import converge as _converge
from sparkfleet.agent.shapes import WheelsOrder
from sparkfleet.changes import lacking_wheels
from sparkfleet.desired import Desired


def converge() -> None:
    """All wheels of a release that is not there, or not as it was built, are in a directory of this host."""
    _converge("wheels", "all there, each byte checked", _orders)


def _orders(wanted: Desired, run: Run) -> Iterator[WheelsOrder]:
    for order in lacking_wheels(wanted, run.seen) if run.seen else ():
        yield replace(order, source=wheel_sources.source(run, order))
