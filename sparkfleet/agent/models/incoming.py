"""The files of a model while they come from a hub or another Spark, and how they are put in place when all are whole.

Beside a model's directory there is another while its files come, ``.<model>.incoming``::

    partial/   files that have not all their bytes, called by what they must be; a fetching process owns it
    whole/     of root: files whose bytes have been checked

It stays when a run is cut off, and the next one goes on from there. Nothing in the model's own directory changes until
every file of the revision is in ``whole``.
"""

import hashlib
import os
import pwd
import shutil
import stat
from pathlib import Path
from typing import Any, BinaryIO

from ..paths import sha256, sync_directory
from ..progress import say
from .hub_shapes import HubFile, Listing


def mark(path: Path) -> list[int] | None:
    """What shows that a file was changed, without reading it: inode, size, time. None where there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return [status.st_ino, status.st_size, status.st_mtime_ns]


def incoming(path: Path) -> Path:
    """Where the files of the model at ``path`` are while they come."""
    return path.parent / f".{path.name}.incoming"


def fetched(path: Path) -> int:
    """Bytes of the model at ``path`` that have come and wait for the rest."""
    places = [incoming(path) / name for name in ("partial", "whole")]
    try:
        return sum(entry.stat(follow_symlinks=False).st_size for place in places for entry in os.scandir(place))
    except OSError:
        return 0


class Staging:
    """The directory beside a model's own while its files come."""

    def __init__(self, path: Path, user: str) -> None:
        self.path, self.partial, self._whole = path, path / "partial", path / "whole"
        self.user = pwd.getpwnam(user)

    def prepare(self) -> None:
        self.path.mkdir(mode=0o755, exist_ok=True)
        self._whole.mkdir(mode=0o700, exist_ok=True)
        self.partial.mkdir(mode=0o700, exist_ok=True)
        for entry in (self.partial, *self.partial.iterdir()):  # the user may have another number since the last run
            os.chown(entry, self.user.pw_uid, self.user.pw_gid, follow_symlinks=False)

    def whole(self) -> dict[str, Path]:
        """Keys whose bytes have been checked, and where they are."""
        return {entry.name: Path(entry.path) for entry in os.scandir(self._whole) if not entry.name.startswith(".")}

    def clear(self) -> None:
        """Take away all of it."""
        shutil.rmtree(self.path, ignore_errors=True)

    def take(self, file: HubFile) -> bool:
        """Make a fetched file root's, then check its bytes; False, and it is gone, if they are others."""
        beside = self._whole / f".{file.key}"
        os.replace(self.partial / file.key, beside)  # where nobody but root can exchange it
        if not stat.S_ISREG(beside.lstat().st_mode):
            shutil.rmtree(beside) if beside.is_dir() and not beside.is_symlink() else beside.unlink()
            return False
        handle = os.open(beside, os.O_RDONLY | os.O_NOFOLLOW)
        with os.fdopen(handle, "rb") as content:
            status = os.fstat(handle)
            ours = status.st_nlink == 1 and status.st_uid == self.user.pw_uid
            if ours:
                os.fchown(handle, os.geteuid(), os.getegid())
                os.fchmod(handle, 0o644)
            good = ours and status.st_size == file.size and has_key(content, file)
            os.fsync(handle)
        if good:
            os.replace(beside, self._whole / file.key)
        else:
            beside.unlink()
        return good


def has_key(content: BinaryIO, file: HubFile) -> bool:
    kind, _, digest = file.key.partition("-")
    found = hashlib.sha1(f"blob {file.size}\0".encode(), usedforsecurity=False) if kind == "git" else hashlib.sha256()
    while chunk := content.read(8 * 1024 * 1024):
        found.update(chunk)
    return found.hexdigest() == digest


def in_place(path: Path, listing: Listing, entry: dict[str, Any]) -> set[str]:
    """Names of the files that are in place with the right bytes; those that the receipt does not vouch for are read."""
    keys = {one["name"]: one["key"] for one in entry.get("listing", ())}
    found = set()
    for file in listing.files:
        target, known = path / file.name, entry.get("files", {}).get(file.name)
        there = mark(target)
        if there is None or there[1] != file.size:
            continue
        vouched = known and known[:3] == there and file.key in (keys.get(file.name), f"sha256-{known[3]}")
        if not vouched:
            say(f"checking {file.name} ({file.size / 1e6:.1f} MB), which is here")
            with target.open("rb") as content:
                vouched = has_key(content, file)
        if vouched:
            found.add(file.name)
    return found


def place(path: Path, listing: Listing, there: set[str], staging: Staging, former: set[str]) -> dict[str, list[Any]]:
    """Put whole files where they belong, one rename each, and take away those of a former revision.

    The mark of every file, with its SHA-256.
    """
    path.mkdir(mode=0o755, exist_ok=True)
    whole = staging.whole()
    todo = [file for file in listing.files if file.name not in there]
    for number, file in enumerate(todo, start=1):
        _put(whole[file.key], path / file.name, keep=any(other.key == file.key for other in todo[number:]))
    for name in sorted(former - {file.name for file in listing.files}):
        (path / name).unlink(missing_ok=True)
    marks = {file.name: _marked(path / file.name, file) for file in listing.files}
    for directory in {path, *((path / name).parent for name in marks)}:
        sync_directory(directory)
    staging.clear()
    return marks


def _put(source: Path, target: Path, keep: bool) -> None:
    target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    if keep:  # the same bytes have another name too
        beside = source.with_name(f".{source.name}")
        shutil.copyfile(source, beside)
        source = beside
    os.utime(source)  # now: a unit that was started before this moment has other bytes in memory
    source.chmod(0o644)
    os.replace(source, target)


def _marked(target: Path, file: HubFile) -> list[Any]:
    if target.stat().st_mode & 0o444 != 0o444:
        target.chmod(0o644)
    kind, _, digest = file.key.partition("-")
    found = mark(target)
    assert found
    return [*found, digest if kind == "sha256" else sha256(target)]
