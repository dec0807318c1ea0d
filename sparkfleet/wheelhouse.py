"""Wheelhouses: directories with every wheel of a lock. ``sparkfleet wheelhouse`` fills them, and so does the lab.

A wheel is fetched into a directory of its own and moved when it is whole, so what was fetched is never fetched again,
however often it is stopped. One directory may serve several engines.
"""

import fcntl
import os
import platform
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from sparkfleet.agent.paths import sha256
from sparkfleet.catalog import engines
from sparkfleet.catalog.engines import Engine
from sparkfleet.errors import UserError
from sparkfleet.overlaps import undeclared
from sparkfleet.pins import Pin, normal, read
from sparkfleet.pip import Pip, pip_for

BATCH = 8
"""Wheels a run of pip: as many as its own start-up is worth, as few as one would lose by stopping it."""
LARGE = 50_000_000
"""Bytes from which on a wheel is a batch of its own."""
WORKERS = 2
"""Runs of pip at a time."""
TICK = 10.0
"""Seconds between two lines of progress while nothing is whole."""
UV_SIZE = 25_000_000
"""Bytes of uv's wheel, about: its lock has the hashes of many and the size of none."""
ROOM_FOR_THE_REST = 100_000_000
"""Bytes for the file system's own."""

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Need:
    """What a wheelhouse lacks. ``size``, ``there`` and ``room`` in bytes; ``room`` must be free on the disk."""

    wheels: int
    missing: tuple[Pin, ...]
    size: int
    there: int
    room: int


class Filling:
    """One filling of a directory: what is missing is fetched in batches, each wheel kept as soon as it is whole."""

    def __init__(self, directory: Path, name: str, progress: Progress) -> None:
        self.directory, self.name, self.progress = directory, name, progress
        self.began = time.monotonic()
        self.fetched = self.bytes = 0
        for stopped in directory.glob("incoming-*"):
            shutil.rmtree(stopped, ignore_errors=True)  # the pip of a killed run may still be writing there

    def has(self, pin: Pin) -> bool:
        """Whether the wheel of a pin is there. One with the right name and other bytes is removed."""
        for wheel in self.directory.glob("*.whl"):
            found = pin_of(wheel, hashed=False)
            if found.name == pin.name and same_release(found, replace(pin, hashes=())):
                if not pin.hashes or sha256(wheel) in pin.hashes:
                    return True
                wheel.unlink()
        return False

    def fetch(self, batches: Sequence[tuple[Pip, Sequence[Pin]]], wheels: int, size: int = 0) -> None:
        """Fetch the batches, ``wheels`` and ``size`` bytes in all (0: not known).

        What was whole is kept when one fails. Raises UserError with the first reason.
        """
        with ThreadPoolExecutor(max_workers=WORKERS) as pool:
            running = {pool.submit(self._one, n, *batch) for n, batch in enumerate(batches)}
            try:
                while running:
                    done, running = wait(running, TICK, FIRST_COMPLETED)
                    self._take(done, wheels, size)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                self._keep_whole(running)
                raise

    def _take(self, done: set[Future[Path]], wheels: int, size: int) -> None:
        failed = [one for one in done if one.exception()]
        for one in done - set(failed):
            self.keep(one.result())
        if not done or set(failed) != done:
            self.report(wheels, size)
        if failed:
            failed[0].result()

    def _keep_whole(self, stopped: set[Future[Path]]) -> None:
        for one in stopped:
            if one.done() and not one.cancelled() and not one.exception():
                self.keep(one.result())

    def _one(self, number: int, pip: Pip, batch: Sequence[Pin]) -> Path:
        incoming = self.directory / f"incoming-{os.getpid()}-{number}"
        pip.download(batch, incoming, hashed=all(pin.hashes for pin in batch))
        return incoming

    def keep(self, incoming: Path) -> list[Path]:
        """Move the wheels of a directory here and remove it; where they are now."""
        kept = []
        for wheel in incoming.glob("*.whl"):
            self.bytes += wheel.stat().st_size
            kept.append(wheel.replace(self.directory / wheel.name))
        shutil.rmtree(incoming)
        self.fetched += len(kept)
        return kept

    def report(self, wheels: int | None = None, size: int = 0) -> None:
        """One line of progress: wheels that are whole, bytes that have come, seconds that have gone."""
        coming = (path for path in self.directory.glob("incoming-*/**/*") if path.is_file())
        have = self.bytes + sum(path.stat().st_size for path in coming)
        wheel_part = f"{self.fetched}{f' of {wheels}' if wheels else ''} wheels"
        byte_part = f"{have / 1e6:.0f}{f' of {size / 1e6:.0f}' if size else ''} MB"
        self.progress(f"{self.name}: {wheel_part}, {byte_part}, {time.monotonic() - self.began:.0f} s")


def batches(pip: Pip, pins: Sequence[Pin], alone: Callable[[Pin], bool]) -> list[tuple[Pip, Sequence[Pin]]]:
    """Batches for ``Filling.fetch``: those that are to come ``alone`` first, the others a few at a time."""
    large = [[pin] for pin in pins if alone(pin)]
    small = [pin for pin in pins if not alone(pin)]
    return [(pip, batch) for batch in large + [small[i : i + BATCH] for i in range(0, len(small), BATCH)]]


def need(engine: Engine, dest: Path, lock: Path | None = None) -> Need:
    """What ``dest`` lacks of an engine's wheels and uv's, each byte of what is there checked. Writes nothing.

    ``lock`` replaces the engine's own. Raises UserError when the engine has no lock that this can be made from.
    """
    pins, sizes = _pins(engine, lock)
    there = {(pin.name, pin.version): path for path in dest.glob("*.whl") for pin in [pin_of(path, hashed=False)]}
    found = {pin: path for pin in pins if (path := there.get((pin.name, pin.version)))}
    good = {pin: path for pin, path in found.items() if sha256(path) in pin.hashes}
    missing = tuple(pin for pin in pins if pin not in good)
    lacking = sorted(sizes.get(pin.name, 0) for pin in missing)
    # a wheel is there twice while pip moves it, and WORKERS of them at a time
    room = sum(lacking) + sum(lacking[-WORKERS:]) + ROOM_FOR_THE_REST if missing else 0
    return Need(len(pins), missing, sum(lacking), sum(path.stat().st_size for path in good.values()), room)


def make(engine: Engine, dest: Path, sources: Mapping[str, str], progress: Progress, lock: Path | None = None) -> Need:
    """Have every wheel of an engine's lock, and uv's, in ``dest``; what was lacking before.

    ``lock`` replaces the engine's own. The lock itself is written last, as ``<engine>.lock``: where it is, everything
    is. Wheels of other engines stay. Raises UserError: no lock, no room, no index, a file that is not the lock's,
    another run that is filling it, two wheels that own a path with different bytes without the engine's file saying so.
    """
    _pins(engine, lock)
    try:
        dest.mkdir(parents=True, exist_ok=True)
        with alone(dest):
            filling = Filling(dest, engine.name, progress)
            lacking = need(engine, dest, lock)
            here = lacking.wheels - len(lacking.missing)
            progress(
                f"{engine.name}: {here} wheels there ({lacking.there / 1e6:.0f} MB), "
                f"{len(lacking.missing)} to fetch ({lacking.size / 1e6:.0f} MB)"
            )
            check_room(dest, lacking.room, "Free some, or name a directory on another disk.")
            _fill(filling, engine, lacking, sources, lock)
            _check_overlaps(engine, dest, lock)
            _write_lock(engine, dest, lock)
    except OSError as error:
        raise UserError(f"{error.filename or dest}: {error.strerror}.") from None
    return lacking


def _fill(filling: Filling, engine: Engine, lacking: Need, sources: Mapping[str, str], lock: Path | None) -> None:
    missing = [pin for pin in lacking.missing if not filling.has(pin)]
    kinds = {one.distribution: one.kind for one in engine.sources}
    for pin in missing:
        if kinds.get(pin.name) and pin.name not in sources:
            raise UserError(
                f"{pin.name} {pin.version}: only you know where it is; give --source {pin.name}=PLACE, or say it"
                f" in the setting `sources`."
            )
    for pin in [pin for pin in missing if kinds.get(pin.name) == "wheel"]:
        _copy(Path(sources[pin.name]), pin, filling)
        missing.remove(pin)
    if not missing:
        return
    _, sizes = _pins(engine, lock)
    target = engine.target
    # The lab's engine runs on hosts of this machine's kind.
    machine = platform.machine() if engine.lock_is_completed_by_wheelhouse else target.architecture
    glibc = int(target.glibc.split(".")[1])
    with pip_for(target.python, machine, glibc, ("--no-cache-dir",)) as pip:
        own = [pin for pin in missing if kinds.get(pin.name) == "index"]
        rest = [pin for pin in missing if pin not in own]
        planned = batches(pip, rest, lambda pin: sizes.get(pin.name, 0) >= LARGE)
        for pin in own:
            planned.append((pip.also_from(sources[pin.name]), [pin]))
        filling.fetch(planned, len(lacking.missing), lacking.size)


def _copy(given: Path, pin: Pin, filling: Filling) -> None:
    if not given.is_file() or sha256(given) not in pin.hashes:
        raise UserError(f"{given}: expected the wheel of {pin.name} {pin.version} that the lock was made from.")
    incoming = filling.directory / f"incoming-{pin.name}"
    incoming.mkdir()
    shutil.copyfile(given, incoming / given.name)
    filling.keep(incoming)


def _check_overlaps(engine: Engine, dest: Path, lock: Path | None) -> None:
    pins = {(pin.name, pin.version): pin.name for pin in read(lock or engine.lock)}
    wheels = {pin: path for path in dest.glob("*.whl") for pin in [pin_of(path, hashed=False)]}
    ours = {pins[pin.name, pin.version]: path for pin, path in wheels.items() if (pin.name, pin.version) in pins}
    if found := undeclared(ours, engine.overlaps):
        raise UserError(
            f"engine {engine.name}: distributions own the same paths with different bytes, and its file does not say "
            f"which wins. {'; '.join(found)}. Pin others, or declare them under `overlaps`."
        )


def _write_lock(engine: Engine, dest: Path, lock: Path | None) -> None:
    new = dest / f"{engine.name}.lock.new"
    new.write_text((lock or engine.lock).read_text(encoding="utf-8"), encoding="utf-8")
    new.replace(dest / f"{engine.name}.lock")


def _pins(engine: Engine, lock: Path | None) -> tuple[tuple[Pin, ...], dict[str, int]]:
    """Pins of an engine and of uv, and bytes by name for those of which the lock says it."""
    if engine.lock_is_completed_by_wheelhouse and not lock:
        raise UserError(f"engine {engine.name}: its wheelhouse is made by `python -m lab.wheelhouse --dest DIR`.")
    lock = lock or engine.lock
    if not lock.exists():
        raise UserError(f"engine {engine.name}: it has no lock. Make it with `{engine.lock_command}`.")
    pins = (*read(lock), *read(engines.ENGINES / "uv.txt"))
    if bare := [pin for pin in pins if not pin.hashes]:
        raise UserError(f"{lock}: {bare[0].name} has no hash, so its wheel cannot be checked.")
    listed = engines.wheels(lock.read_text(encoding="utf-8"))
    return pins, {"uv": UV_SIZE} | {normal(file.split("-")[0]): size for file, size in listed.items()}


def pin_of(wheel: Path, hashed: bool = True) -> Pin:
    """The pin that a wheel is, from its file name; with its hash unless that is not asked for."""
    name, version, *_ = wheel.name.split("-")
    return Pin(normal(name), version, "", (sha256(wheel),) if hashed else ())


def same_release(there: Pin, wanted: Pin) -> bool:
    """Whether a wheel that is there is of the wanted release; without wanted hashes, a local version does not count."""
    if wanted.hashes:
        return there.version == wanted.version and set(there.hashes) <= set(wanted.hashes)
    return there.version.split("+")[0] == wanted.version.split("+")[0]


def check_room(directory: Path, room: float, remedy: str) -> None:
    """Refuse when fewer than ``room`` bytes are free there, with what to do about it."""
    free = shutil.disk_usage(directory).free
    if free < room:
        raise UserError(
            f"{directory}: the wheelhouse takes {room / 1e9:.1f} GB, {free / 1e9:.1f} GB are free there. {remedy}"
        )


@contextmanager
def alone(directory: Path) -> Iterator[None]:
    """Hold a directory against other runs, until the end or the death of this one."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"{directory}: another run is filling it. Wait for it to end.") from None
        yield
    finally:
        os.close(handle)
