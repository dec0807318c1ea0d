"""What sparkfleet keeps in a patched site-packages: the originals, what it laid down, and a change in progress.

    .sparkfleet-patches/
        originals/<SHA-256>     every file as it was before us
        state.json              what is laid down: path, original, patched
        journal.json            there only while a change is in progress

A change first puts all it needs on the disk (``staging``), then renames (``switching``). Cut off while staging, it has
touched nothing. Cut off while switching, an apply is driven back unless ``state.json`` names it, a revert is driven
forward. So whatever instruction a crash hits, ``settle`` ends in all old or all new, from bytes that were on the disk
before the first target was touched.
"""

import contextlib
import json
import os
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from ..errors import HostError
from .files import sha256
from .shapes import SCHEMA

DIRECTORY = ".sparkfleet-patches"


@dataclass(frozen=True)
class Laid:
    """A file that we changed: SHA-256 of what it was and of what it is."""

    path: str
    original: str
    patched: str


@dataclass(frozen=True)
class Change:
    """One file of a change: its bytes as the distribution shipped it, as it is, and as it shall be."""

    path: str
    original: bytes
    before: bytes
    after: bytes


@dataclass(frozen=True)
class _Step:
    path: str
    before: str
    after: str


@dataclass(frozen=True)
class _Journal:
    """``staging``: no target has been touched yet. ``switching``: some may be new already."""

    change: str
    action: Literal["apply", "revert"]
    phase: Literal["staging", "switching"]
    steps: tuple[_Step, ...]


def kept_originals(site: Path) -> dict[str, bytes]:
    """The originals that are kept, by the SHA-256 of the patched file that replaced each."""
    kept = {}
    for laid in laid_down(site):
        data = _original(site, laid.original)
        if data is not None:
            kept[laid.patched] = data
    return kept


def laid_down(site: Path) -> tuple[Laid, ...]:
    """What the last change that was finished laid down."""
    state = _load(_home(site) / "state.json")
    try:
        laid = tuple(Laid(**entry) for entry in state["files"]) if state else ()
        for one in laid:
            _check(one.path, one.original, one.patched)
        return laid
    except (KeyError, TypeError, ValueError):
        raise HostError(_unreadable(_home(site) / "state.json")) from None


def interrupted(site: Path) -> bool:
    """Whether a change was cut off and nothing has settled it yet."""
    return (_home(site) / "journal.json").exists()


def make(site: Path, action: Literal["apply", "revert"], changes: Iterable[Change], after: Iterable[Laid]) -> None:
    """Write every change. An apply must then be decided, by ``commit`` or by ``settle``; a revert is decided already.

    ``after`` is what will be laid down then. Raises HostError when the file system does not take it: everything is
    then as it was or, if not even that could be done, the journal is there for the next run.
    """
    changes, name = tuple(changes), secrets.token_hex(8)
    steps = tuple(_Step(c.path, sha256(c.before), sha256(c.after)) for c in changes)
    journal = _Journal(name, action, "staging", steps)
    try:
        _keep(site, {sha256(data): data for c in changes for data in (c.original, c.before)})
        _save(_home(site) / "journal.json", {"schema": SCHEMA, **asdict(journal)})
        for change in changes:
            _stage(site, change.path, change.after, name)
        if action == "apply":
            _save(_home(site) / "pending.json", _state(name, after))
        # All that needs room is on the disk; what follows are renames.
        _save(_home(site) / "journal.json", {"schema": SCHEMA, **asdict(replace(journal, phase="switching"))})
        for change in changes:
            _switch(site, change.path, name)
    except OSError as error:
        raise HostError(_given_up(site, error)) from None


def commit(site: Path) -> None:
    """Make the change of ``make`` the truth, and leave nothing of the way there."""
    home = _home(site)
    try:
        if (home / "pending.json").exists():
            os.replace(home / "pending.json", home / "state.json")
            _sync(home)
    except OSError as error:
        raise HostError(_given_up(site, error)) from None
    settle(site)


def settle(site: Path) -> bool:
    """Finish or undo a change that was cut off, and leave nothing that is not needed. True when there was one.

    Raises HostError when the file system does not take it.
    """
    try:
        journal = _journal(site)
        if journal:
            _settle(site, journal)
        _sweep(site)
    except OSError as error:
        raise HostError(f"{site}: an interrupted change cannot be settled: {error.strerror or error}.") from None
    return journal is not None


def _settle(site: Path, journal: _Journal) -> None:
    home = _home(site)
    forward = _forward(site, journal)
    for step in journal.steps:
        if journal.phase == "switching" and not (forward and journal.action == "apply"):
            _restore(site, step, step.after if forward else step.before, journal.change)
        _drop(_beside(site / step.path, journal.change))
    if journal.action == "revert" and journal.phase == "switching":
        _drop(home / "state.json")
    _drop(home / "journal.json")


def _restore(site: Path, step: _Step, wanted: str, change: str) -> None:
    """Bring one file to ``wanted``, if it is still what the change made of it; bytes of anybody else are left alone."""
    place = site / step.path
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        there = sha256(place.read_bytes())
        if there != wanted and there in (step.before, step.after):
            # Staged anew even if a staged file is there: it may be whole and still lack its mode or be half synced.
            _stage(site, step.path, _needed(site, wanted, place), change)
            _switch(site, step.path, change)
        _drop_bytecode(place)


def _needed(site: Path, wanted: str, place: Path) -> bytes:
    data = _original(site, wanted)
    if data is None:
        raise HostError(
            f"{place}: an interrupted change cannot be settled, the bytes to go back to are gone from {_home(site)}. "
            f"Reinstall the distribution, remove that directory, then apply again."
        )
    return data


def _stage(site: Path, path: str, data: bytes, change: str) -> None:
    """The new file beside the old one, whole and on the disk, with the old one's mode and owner."""
    place = site / path
    old = os.stat(place)
    handle = os.open(_beside(place, change), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        new = os.fstat(handle)
        if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
            os.fchown(handle, old.st_uid, old.st_gid)
        _write(handle, data)
        os.fchmod(handle, old.st_mode & 0o7777)
        os.fsync(handle)
    finally:
        os.close(handle)


def _switch(site: Path, path: str, change: str) -> None:
    # A rename, never a write in place: the old file may be a hard link into an installer's cache, or a link to it.
    place = site / path
    os.replace(_beside(place, change), place)
    _sync(place.parent)
    _drop_bytecode(place)


def _drop_bytecode(place: Path) -> None:
    """Bytecode of the old text goes: it is found by time and size, and a clock can be wrong."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for name in os.listdir(place.parent / "__pycache__"):
            if name.startswith(f"{place.stem}.") and name.endswith(".pyc"):
                os.unlink(place.parent / "__pycache__" / name)


def _beside(place: Path, change: str) -> Path:
    return place.with_name(f".{place.name}.{change}.sparkfleet")


def _keep(site: Path, originals: Mapping[str, bytes]) -> None:
    for directory in (_home(site), _home(site) / "originals"):
        if not directory.is_dir():
            os.mkdir(directory, 0o755)
            os.chmod(directory, 0o755)  # whatever the umask: the guard reads it as another user
            _sync(directory.parent)
    for name, data in originals.items():
        if _original(site, name) is None:
            _replace(_home(site) / "originals" / name, data)


def _original(site: Path, name: str) -> bytes | None:
    try:
        data = (_home(site) / "originals" / name).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return data if sha256(data) == name else None


def _sweep(site: Path) -> None:
    """Remove what no finished change needs; with nothing laid down, remove our directory itself.

    Touches nothing when there is nothing to remove: a converged directory may be read-only.
    """
    home = _home(site)
    if not home.is_dir():
        return
    wanted = {laid.original for laid in laid_down(site)}
    for name in os.listdir(home):
        if name in ("pending.json", "pending.json.new", "journal.json.new", "state.json.new"):
            os.unlink(home / name)
    kept = home / "originals"
    for name in os.listdir(kept) if kept.is_dir() else ():
        if name not in wanted:
            os.unlink(kept / name)
    if not wanted:
        _drop(home / "state.json")
        if kept.is_dir():
            os.rmdir(kept)
        if not os.listdir(home):  # anything else there is not ours
            os.rmdir(home)


def _given_up(site: Path, error: OSError) -> str:
    what = f"{site}: cannot be changed: {error.strerror or error}"
    try:
        journal = _journal(site)
        forward = journal is not None and _forward(site, journal)
        settle(site)
    except HostError as second:
        return f"{what}. Settling that failed too ({second}); the next run does it first."
    return f"{what}, in the end; the change itself was finished." if forward else f"{what}. Nothing was changed."


def _forward(site: Path, journal: _Journal) -> bool:
    """Whether a change is past the instant that decides, so that it ends in all new and not in all old."""
    if journal.action == "revert":
        return journal.phase == "switching"
    state = _load(_home(site) / "state.json")
    return state is not None and state.get("change") == journal.change


def _journal(site: Path) -> _Journal | None:
    path = _home(site) / "journal.json"
    found = _load(path)
    if not found:
        return None
    try:
        steps = tuple(_Step(**step) for step in found["steps"])
        for step in steps:
            _check(step.path, step.before, step.after)
        if not re.fullmatch("[0-9a-f]{16}", found["change"]):
            raise ValueError("not a name of ours")
        if found["action"] not in ("apply", "revert") or found["phase"] not in ("staging", "switching"):
            raise ValueError("not a step of ours")
        return _Journal(found["change"], found["action"], found["phase"], steps)
    except (KeyError, TypeError, ValueError):
        raise HostError(_unreadable(path)) from None


def _check(path: str, *hashes: str) -> None:
    """Raise TypeError or ValueError unless this is a path below the directory, and hashes as we write them."""
    if not isinstance(path, str) or "\0" in path or any(part in ("", ".", "..") for part in path.split("/")):
        raise ValueError("not a path of ours")
    os.fsencode(path)
    if not all(re.fullmatch("[0-9a-f]{64}", one) for one in hashes):
        raise ValueError("not a hash of ours")


def _state(change: str, files: Iterable[Laid]) -> dict[str, Any]:
    return {"schema": SCHEMA, "change": change, "files": [asdict(laid) for laid in files]}


def _load(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_bytes())
        if not isinstance(found, dict) or not isinstance(found.get("schema"), int):
            raise ValueError("not of the expected shape")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError):
        raise HostError(_unreadable(path)) from None
    if found["schema"] > SCHEMA:
        raise HostError(f"{path}: written by a newer sparkfleet (schema {found['schema']}, this one reads {SCHEMA}).")
    return found


def _unreadable(path: Path) -> str:
    return (
        f"{path}: cannot be read or is not ours, so what was changed here is not known. Reinstall the patched "
        f"distributions, remove {path.parent}, then apply again."
    )


def _save(path: Path, value: Mapping[str, Any]) -> None:
    _replace(path, (json.dumps(value, indent=1, sort_keys=True) + "\n").encode("ascii"))


def _replace(path: Path, data: bytes) -> None:
    new = path.with_name(f"{path.name}.new")
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        _write(handle, data)
        os.fchmod(handle, 0o644)
        os.fsync(handle)
    finally:
        os.close(handle)
    os.replace(new, path)
    _sync(path.parent)


def _write(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def _drop(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _home(site: Path) -> Path:
    return site / DIRECTORY
