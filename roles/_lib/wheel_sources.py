"""Where hosts get their wheels and models from: a server of this process, or one on a Spark. Each is started at its
first use in a run, never while a run is prepared, and ends with the run however that ends.
"""

import contextlib
import secrets
import socket
import sys
import threading
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, TypeVar

import gevent
from pyinfra import logger
from pyinfra.api.host import Host
from pyinfra.connectors.local import LocalConnector

from roles._lib.facts import Run, all_runs, execute
from sparkfleet import wheelhouse
from sparkfleet.agent import wire
from sparkfleet.agent.__main__ import ANSWER
from sparkfleet.agent.errors import HostError
from sparkfleet.agent.releases.lock_file import Pin, parse
from sparkfleet.agent.shapes import ServeModelOrder, ServeOrder, WheelsOrder, WheelSource
from sparkfleet.agent.supply.wheel_server import WheelServer, offered
from sparkfleet.bundle import installed_agent
from sparkfleet.cache import cache_dir, make_dir
from sparkfleet.catalog.engines import engine
from sparkfleet.errors import UserError
from sparkfleet.plan import HostPlan, ReleasePlan

T = TypeVar("T")

HERE = "the control machine"
_LOOPBACK = "127.0.0.1"


def outside(host: Host, plan: HostPlan) -> list[str]:
    """Sparks that the wheels of ``host`` come from and that are not part of this run."""
    limited = {one.name for one in host.state.inventory if host.state.is_host_in_limit(one)}
    return sorted({one.supply.name for one in plan.releases} - {"", *limited})


def obstacle(run: Run) -> str:
    """Why the wheels that a host lacks cannot come to it in this run, by its plan alone; empty if they can."""
    missed = outside(run.host, run.plan)
    if not missed or not any(change.role == "wheels" for change in run.pending()):
        return ""
    return (
        f"Its wheels are to come from {missed[0]} (`wheelhouse_from`), which is not part of this run. "
        f"Remedy: run for both (--limit {missed[0]} --limit {run.host.name})."
    )


def source(run: Run, order: WheelsOrder) -> WheelSource:
    """Where this host gets the wheels of ``order``; started if it is not there yet.

    Raises UserError with the reason when it cannot be had. It is the same one for every host that asks.
    """
    release = next(one for one in run.plan.releases if one.name == order.release)
    supply = release.supply
    if supply.kind == "spark":
        giver = _giver(supply.name, "its wheelhouse")
        if not isinstance(giver.host.connector, LocalConnector):
            return _once(
                ("spark", supply.name, supply.directory, release.lock), lambda: _on_spark(giver, order, release)
            )
    directory = Path(supply.directory) if supply.directory else None
    if supply.kind == "index":
        directory = _once(("index", directory, release.engine, release.lock), lambda: _fetched(release))
    assert directory
    address, _ = _ends(run.host)
    place = directory
    return _once(("control", address, directory, release.lock), lambda: _on_control(address, place, order))


class _Once:
    """A value that is made at most once, however many greenlets ask for it; or the reason why it cannot be."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.value: Any = None
        self.trouble = ""

    def get(self, make: Callable[[], T]) -> T:
        with self.lock:
            if self.value is None and not self.trouble:
                try:
                    self.value = make()
                except (UserError, HostError) as error:
                    self.trouble = str(error)
        if self.trouble:
            raise UserError(self.trouble)
        made: T = self.value
        return made


_made: dict[Hashable, _Once] = {}


def _once(key: Hashable, make: Callable[[], T]) -> T:
    return _made.setdefault(key, _Once()).get(make)


# --- by this machine ---------------------------------------------------------------------------------------------


def _fetched(release: ReleasePlan) -> Path:
    """The directory that has every wheel of ``release`` now: those that it lacked were fetched."""
    supply = release.supply
    directory = Path(supply.directory) if supply.directory else make_dir(cache_dir() / "wheels")
    given = {name: place.get_secret_value() for name, place in supply.sources.items()}
    lock = Path(supply.lock) if supply.lock else None
    try:
        wheelhouse.make(engine(release.engine), directory, given, logger.info, lock)
    except UserError as error:
        raise UserError(
            f"the wheels cannot be fetched into {directory}. {error} Where there is no internet, name a `wheelhouse`."
        ) from None
    return directory


def _on_control(address: str, directory: Path, order: WheelsOrder) -> WheelSource:
    wheels = offered(_pins(order), directory)
    server = WheelServer(address, _peers(), secrets.token_urlsafe(32), wheels)
    server.start()
    return WheelSource(HERE, address, server.port, server.token)


def _pins(order: WheelsOrder) -> tuple[Pin, ...]:
    return (*parse(order.lock), Pin("uv", order.uv, frozenset(order.uv_hashes)))


def _peers() -> tuple[str, ...]:
    """The addresses of all hosts of this run, as they are seen from here."""
    found = []
    for run in all_runs().values():
        with contextlib.suppress(UserError, OSError):  # not reached directly, or no longer: it cannot ask either
            found.append(_ends(run.host)[1])
    return tuple(found)


def _ends(host: Host) -> tuple[str, str]:
    """This machine's address on the way to ``host``, and the host's."""
    if isinstance(host.connector, LocalConnector):
        return _LOOPBACK, _LOOPBACK
    client = getattr(host.connector, "client", None)
    transport = client.get_transport() if client else None
    connection = transport.sock if transport else None
    if not isinstance(connection, socket.socket):
        raise UserError(
            f"{host.name} is reached through another machine, so no wheels can be handed to it or by it. Have them in "
            f"a directory there: `wheelhouse`."
        )
    return connection.getsockname()[0], connection.getpeername()[0]


# --- by a Spark --------------------------------------------------------------------------------------------------


def _giver(name: str, what: str) -> Run:
    giver = all_runs().get(name)
    if giver is None:
        raise UserError(f"{what} is to come from {name}, which was not reached. Mend that, then run again.")
    if giver.blocked or giver.failed:
        blocked = giver.blocked.partition("\n")[0].rstrip(".")
        reason = f"failed at {giver.failed}" if giver.failed else f"is blocked: {blocked}"
        raise UserError(f"{what} is to come from {name}, which {reason}. Mend that, then run again.")
    return giver


def _on_spark(giver: Run, order: WheelsOrder, release: ReleasePlan) -> WheelSource:
    """Start the server there, on the address that this machine reaches it at, and wait until it serves."""
    directory = release.supply.directory
    assert directory
    return hand_out(
        giver,
        "serve",
        lambda at, peers, token: ServeOrder(directory, order.lock, order.uv, order.uv_hashes, at, peers, token),
        "its wheels",
    )


def model_on_spark(run: Run, name: str, model: str) -> WheelSource:
    """Where Spark ``name`` hands out ``model`` to this host; it is waited for while it comes to have it in this run.

    Raises UserError when it cannot.
    """
    giver = _giver(name, f"model {model}")
    while any(change.role == "weights" for change in giver.pending()) and not (giver.failed or giver.blocked):
        if "--serial" in sys.argv:
            raise UserError(f"model {model} is to come from {name}, which does not have it yet: run for it first.")
        gevent.sleep(0.5)
    giver = _giver(name, f"model {model}")
    return _once(
        ("model", name, model),
        lambda: hand_out(
            giver, "serve-model", lambda at, peers, token: ServeModelOrder(model, at, peers, token), f"model {model}"
        ),
    )


def hand_out(giver: Run, verb: str, order: Callable[[str, tuple[str, ...], str], object], what: str) -> WheelSource:
    """Start a server on a Spark, on the address that this machine reaches it at, and wait until it serves."""
    _, address = _ends(giver.host)
    token = secrets.token_urlsafe(32)
    peers = (*_peers(), *([_ends(giver.host)[0]] if _LOOPBACK in _peers() else []))
    serving = gevent.spawn(_run, giver.host, verb, wire.encode(order(address, peers, token)))
    asking = gevent.spawn(_run, giver.host, "served", token)
    gevent.wait((serving, asking), count=1)
    good, said = (asking if asking.ready() else serving).value
    if serving.ready() or not good:
        raise UserError(f"{giver.host.name} does not hand out {what}: {said}")
    return WheelSource(giver.host.name, address, int(said.rpartition(ANSWER)[2]), token)


def _run(host: Host, verb: str, line: str) -> tuple[bool, str]:
    try:
        good, output = execute(host, installed_agent(verb), [line], show=False)
    except (ConnectionError, PermissionError) as error:
        return False, str(error)
    return good, " ".join(output.output.split())[-600:] or "it said nothing"
