"""Wheels that are brought to a host: from where they are handed out into a directory of ours, each byte checked.

A wheel has its name once all its bytes are those of the lock; until then it is a hidden file that the next attempt goes
on with. The wheels stay after the release is sealed: one that was changed behind our back is built again from them
without any network, an engine that shares wheels with another brings only the rest, and they are a twentieth of the
model that they serve. ``forget`` removes those that no release is built from any more.

Beside them lies a hidden file for each release, ``.<release>.json``: ``lacking``, the wheels that were still to come
when its fetching began with their sizes, or ``wheels``, all that it needs as they were when they were checked.
"""

import contextlib
import errno
import hashlib
import http.client
import json
import os
import shutil
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import HostError
from ..paths import sha256, sync_directory, write
from ..progress import say
from ..releases.lock_file import Pin, parse, release_of, wheels_by_release
from ..shapes import Author, DiskNeed, WheelsOrder
from .source import Source
from .wheel_server import CHUNK

TICK = 5.0
"""Seconds between two lines of progress."""
UNPACKED = 3
"""Bytes on disk that a byte of wheel becomes, at the most (``sparkfleet.catalog.engines``)."""
_LISTING = 4 * 1024 * 1024
"""Bytes of the longest list of wheels that is believed."""


# --- what is there, for the observed state -----------------------------------------------------------------------


def complete(directory: Path, releases: Iterable[str]) -> tuple[str, ...]:
    """Those of ``releases`` that all wheels are there for, unchanged since each byte of them was checked."""
    return tuple(name for name in releases if _is_complete(directory, _note(directory, name)))


def _is_complete(directory: Path, note: dict[str, Any]) -> bool:
    marks = note.get("wheels")
    return isinstance(marks, dict) and all(_mark(directory / name) == mark for name, mark in marks.items())


def still_needed(need: DiskNeed) -> DiskNeed:
    """``need`` of a release's wheels, less what an earlier attempt has brought already."""
    directory = Path(need.path)
    note = _note(directory, need.unless)
    if _is_complete(directory, note):
        return replace(need, size=0)
    lacking = note.get("lacking")
    if not isinstance(lacking, dict):
        return need
    return replace(need, size=sum(max(0, int(size) - _here(directory, name)) for name, size in lacking.items()))


def _here(directory: Path, name: str) -> int:
    for path in (directory / name, _part(directory, name)):
        with contextlib.suppress(OSError):
            return path.stat().st_size
    return 0


def _note(directory: Path, release: str) -> dict[str, Any]:
    try:
        content = json.loads(_note_path(directory, release).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _note_path(directory: Path, release: str) -> Path:
    return directory / f".{release}.json"


def _part(directory: Path, name: str) -> Path:
    return directory / f".{name}.part"


def _mark(path: Path) -> list[int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return [status.st_ino, status.st_size, status.st_mtime_ns]


# --- bring them --------------------------------------------------------------------------------------------------


def apply(order: WheelsOrder, author: Author) -> None:
    """Have every wheel of ``order`` in its directory.

    Raises HostError: the source lacks wheels (all are named), no room, a wheel that came with other bytes twice, a
    source that is gone. What came is kept, and the next attempt goes on from there.
    """
    directory = Path(order.directory)
    pins = (*parse(order.lock), Pin("uv", order.uv, frozenset(order.uv_hashes)))
    try:
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        there = _checked(directory, pins)
        lacking = [pin for pin in pins if pin.name not in there]
        if lacking:
            there |= _bring(order, directory, lacking, there)
            sync_directory(directory)
        marks = {path.name: _mark(path) for path in there.values()}
        write(_note_path(directory, order.release), json.dumps({"wheels": marks}) + "\n", 0o644)
    except OSError as error:
        raise HostError(_trouble(directory, error)) from None
    say(f"{len(pins)} wheels in {directory}, {len(lacking)} of them brought now")


def _checked(directory: Path, pins: Iterable[Pin]) -> dict[str, Path]:
    """The wheels that are there, by name of their distribution, each byte checked."""
    there = wheels_by_release(directory)
    found = {}
    for pin in pins:
        candidates = there.get((pin.name, pin.version), [])
        if good := next((path for path in candidates if sha256(path) in pin.hashes), None):
            found[pin.name] = good
    return found


def _bring(order: WheelsOrder, directory: Path, lacking: list[Pin], there: dict[str, Path]) -> dict[str, Path]:
    assert order.source
    with contextlib.closing(_Source(order.source)) as source:
        sizes = source.sizes()
        chosen = _choose(lacking, sizes, order.source.name)
        wanted = {name: sizes[name] for name in chosen.values()}
        write(_note_path(directory, order.release), json.dumps({"lacking": wanted}) + "\n", 0o644)
        unpacked = order.unpacked or UNPACKED * (
            sum(wanted.values()) + sum(path.stat().st_size for path in there.values())
        )
        _check_room(directory, wanted, Path(order.releases), unpacked)
        fetching = _Fetching(source, directory, wanted)
        return {pin.name: fetching.wheel(chosen[pin.name], pin.hashes) for pin in lacking}


def _choose(lacking: Iterable[Pin], sizes: Mapping[str, int], source: str) -> dict[str, str]:
    """The file to take for each pin, by name. Raises HostError naming every pin that the source has none for."""
    offers: dict[tuple[str, str], list[str]] = {}
    for name in sizes:
        if release := release_of(name):
            offers.setdefault(release, []).append(name)
    machine = os.uname().machine
    chosen, missing = {}, []
    for pin in lacking:
        names = offers.get((pin.name, pin.version), [])
        if names:  # uv's hashes are those of every machine
            chosen[pin.name] = min(names, key=lambda name: (not name.endswith((f"{machine}.whl", "-any.whl")), name))
        else:
            missing.append(f"{pin.name}=={pin.version}")
    if missing:
        raise HostError(
            f"the wheelhouse of {source} lacks {', '.join(missing)}. Make it complete (`sparkfleet wheelhouse`), then "
            f"run again. Nothing was built."
        )
    return chosen


def _check_room(directory: Path, wanted: Mapping[str, int], releases: Path, unpacked: int) -> None:
    parts = ((_mark(_part(directory, name)), size) for name, size in wanted.items())
    coming = sum(size - (min(size, mark[1]) if mark else 0) for mark, size in parts)
    place = next(path for path in (releases, *releases.parents) if path.exists())
    together = directory.stat().st_dev == place.stat().st_dev
    needs = [(directory, coming + unpacked)] if together else [(directory, coming), (place, unpacked)]
    for path, need in needs:
        free = shutil.disk_usage(path).free
        if free < need:
            what = "the wheels and the release need" if together else "needs"
            raise HostError(
                f"{path}: {what} {need / 1e9:.2f} GB, {free / 1e9:.2f} GB are free. Free room there, then run again. "
                f"Nothing was fetched."
            )


def _trouble(directory: Path, error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return f"{directory}: the disk ran full while wheels came. What came is kept: free room there, then run again."
    return f"{error.filename or directory}: wheels cannot be brought: {error.strerror or error}."


class _Fetching:
    """One bringing of wheels, and how far it is."""

    def __init__(self, source: "_Source", directory: Path, wanted: Mapping[str, int]) -> None:
        self.source, self.directory, self.wanted = source, directory, wanted
        self.began = self.told = time.monotonic()
        self.wheels = self.bytes = 0
        self.total = sum(wanted.values())
        have = sum(_part(directory, name).stat().st_size for name in wanted if _part(directory, name).exists())
        resumed = f", {have / 1e6:.1f} MB of them already here" if have else ""
        say(f"{len(wanted)} wheels to come from {source.name}, {self.total / 1e6:.1f} MB{resumed}")

    def wheel(self, name: str, hashes: frozenset[str]) -> Path:
        """Bring one wheel; what is here of it is not fetched again. Raises HostError when its bytes are wrong twice."""
        part, target = _part(self.directory, name), self.directory / name
        for attempt in (1, 2):
            if self._receive(name, part) in hashes:
                part.chmod(0o644)
                part.replace(target)
                self.wheels += 1
                self._tell(self.wheels == len(self.wanted))
                return target
            self.bytes -= part.stat().st_size
            part.unlink()
            if attempt == 1:
                say(f"{name} came with other bytes than the lock's: fetched again")
        raise HostError(
            f"{name}: what {self.source.name} hands out is not what the lock wants (its SHA-256 differs, twice). The "
            f"file there is cut short or foreign: make its wheelhouse again, then run again. Nothing was built."
        )

    def _receive(self, name: str, part: Path) -> str:
        """All bytes of a wheel, from the first that is not here yet on; their SHA-256."""
        size = self.wanted[name]
        if part.exists() and part.stat().st_size > size:
            part.unlink()
        digest = hashlib.sha256()
        with open(os.open(part, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
            while chunk := file.read(CHUNK):
                digest.update(chunk)
            self.bytes += file.tell()
            failures = 0
            while file.tell() < size:
                before = file.tell()
                try:
                    self._stream(name, file, size, digest)
                except (http.client.HTTPException, ConnectionError, TimeoutError) as error:
                    failures = 1 if file.tell() > before else failures + 1
                    self.source.gave_up(error, failures)
            file.flush()
            os.fsync(file.fileno())
        return digest.hexdigest()

    def _stream(self, name: str, file: BinaryIO, size: int, digest: Any) -> None:
        response = self.source.get(name, file.tell())
        while file.tell() < size:
            chunk = response.read(min(CHUNK, size - file.tell()))
            if not chunk:
                raise ConnectionError("it stopped in the middle of a wheel")
            file.write(chunk)
            digest.update(chunk)
            self.bytes += len(chunk)
            self._tell(False)

    def _tell(self, always: bool) -> None:
        now = time.monotonic()
        if always or now - self.told > TICK:
            self.told = now
            say(
                f"{self.wheels} of {len(self.wanted)} wheels, {self.bytes / 1e6:.1f} of {self.total / 1e6:.1f} MB, "
                f"{now - self.began:.1f} s"
            )


class _Source(Source):
    """Where the wheels are handed out. Nothing that it says is believed before it is checked."""

    what = "wheels"
    instead = "a wheelhouse on this host"

    def sizes(self) -> dict[str, int]:
        """Bytes of each wheel that it offers, by file name. Raises HostError when it cannot be asked."""
        try:
            content = json.loads(self.read("", _LISTING))
            return {name: int(size) for name, size in content.items()}
        except (ValueError, AttributeError, TypeError):
            raise HostError(f"{self.name} does not answer with a list of wheels. Run again.") from None


# --- remove them -------------------------------------------------------------------------------------------------


def forget(directory: Path, kept: Mapping[str, str]) -> int:
    """Remove the wheels that no release of ``kept`` (lock by name) is built from; the bytes that became free.

    uv's wheels stay as long as anything does. Raises HostError on a lock that cannot be read; nothing is removed then.
    """
    needed = {(pin.name, pin.version) for lock in kept.values() for pin in parse(lock)}
    notes = {_note_path(directory, name).name for name in kept}
    freed = 0
    for path in sorted(directory.iterdir()) if directory.is_dir() else ():
        release = release_of(path.name)
        is_kept = path.name in notes or (release and kept and (release in needed or release[0] == "uv"))
        if not is_kept and (release or path.name.endswith((".whl.part", ".json"))):
            freed += path.stat().st_size
            path.unlink()
    return freed
