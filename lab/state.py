"""What the lab remembers, and where: ``/run/sparkfleet-lab/LAB/NAME/host.json`` and what stands next to it.

Only what cannot be seen is written down. Whether a host runs, and as which process, is asked of the
kernel each time (``machine``), so that no record can be stale.
"""

import fcntl
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from lab.cache import cache_dir
from sparkfleet.errors import UserError

RUN = Path("/run/sparkfleet-lab")
LAB_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,19}")  # part of paths, unit names and interface aliases


class Options(BaseModel):
    """What a host has beyond the usual, kept over ``crash`` and ``boot``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    binds: dict[str, str] = {}  #: path in the host -> path on this machine, read-only
    limits: dict[str, int] = {}  #: path in the host ("/" or a directory) -> size in bytes of its own file system
    read_only: tuple[str, ...] = ()  #: paths in the host that nobody can write to


class Host(BaseModel):
    """One lab Spark. ``number`` is unique over all labs of this machine, and its addresses follow from it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    lab: str
    name: str
    number: int
    scenario: str = "good"
    options: Options = Options()
    host_key: str = ""  #: public SSH host key, as in a known_hosts line
    made: bool = False  #: disk and network are complete; a host without it is rubble of an interrupted ``up``

    @property
    def address(self) -> str:
        """Management address, reachable from this machine only."""
        return f"198.51.100.{self.number}"

    @property
    def fabric(self) -> dict[str, str]:
        """Interface -> address on the fabric: the two twins of one cable, each in its own /25."""
        return {
            "enp1s0f0np0": f"203.0.113.{self.number}",
            "enP2p1s0f0np0": f"203.0.113.{self.number + 128}",
        }

    @property
    def place(self) -> "Place":
        return Place(self.lab, self.name)


class Place:
    """Where the parts of a host are: everything ``down`` needs to know, even of a host without a record."""

    def __init__(self, lab: str, name: str) -> None:
        self.lab, self.name = lab, name
        self.run = RUN / lab / name
        self.record = self.run / "host.json"
        self.root = self.run / "root"  #: the merged root file system, seen from this machine
        self.limited = self.run / "limited"  #: mount points of size-limited file systems
        self.netns = self.run / "net"  #: its network namespace, pinned
        self.console = self.run / "console.log"
        self.disk = cache_dir() / "hosts" / lab / name  #: what it wrote; on a real disk, where overlayfs works


def fabric_of(lab: str) -> Path:
    """The network namespace that is the fabric's switch: no address, no route, unseen by this machine."""
    return RUN / lab / "fabric"


def lab_dir(lab: str) -> Path:
    if not LAB_NAME.fullmatch(lab):
        raise UserError(f"lab name {lab!r}: expected up to 20 of a-z, 0-9 and '-', not beginning with '-'.")
    return RUN / lab


def labs() -> list[str]:
    return sorted(p.name for p in RUN.iterdir() if p.is_dir()) if RUN.is_dir() else []


def places(lab: str) -> list[Place]:
    """Every host of a lab that left anything in ``/run``, made or half made, in the order of their names."""
    directory = lab_dir(lab)
    return [Place(lab, p.name) for p in sorted(directory.iterdir()) if p.is_dir()] if directory.is_dir() else []


def hosts(lab: str) -> list[Host]:
    """The recorded hosts of a lab, running or not, in the order of their names."""
    return [h for place in places(lab) if (h := load(place))]


def load(place: Place) -> Host | None:
    """The record of a host; None if there is none or it is torn."""
    try:
        return Host.model_validate_json(place.record.read_bytes())
    except (OSError, ValueError):
        return None


def save(host: Host) -> Host:
    place = host.place
    place.run.mkdir(parents=True, exist_ok=True)
    fresh = place.record.with_suffix(".new")
    fresh.write_text(host.model_dump_json(indent=2) + "\n")
    fresh.rename(place.record)  # a reader never sees half a record
    return host


@contextmanager
def locked(directory: Path, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold a directory for this process until the end or its death; create it first if need be.

    The holder may remove the directory, so whoever waited checks that what it locked is still there.
    ``waiting`` is called once if another process holds it now.
    """
    while True:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue  # its holder removed it just now
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waiting()
                fcntl.flock(fd, fcntl.LOCK_EX)
            if _same(fd, directory):
                yield
                return
        finally:
            os.close(fd)


def _same(fd: int, path: Path) -> bool:
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return False
    return (there.st_dev, there.st_ino) == ((s := os.fstat(fd)).st_dev, s.st_ino)
