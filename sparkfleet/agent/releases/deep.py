"""Every file of every release in use, by hash, against the RECORDs of its distributions and the release's receipt.

What the guard of a unit tells by inode, size and time, this proves; and it finds what belongs to nobody. Nothing of the
release is changed but its receipt, which says what was found: it is not started from again, whoever asks is told, and
the next deploy builds it anew beside the one that runs.
"""

import os
import re
import stat
import struct
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from .. import receipt
from ..errors import HostError
from ..patching.records import Digest, everything
from ..progress import say
from ..services import generations
from ..shapes import Author, DeepOrder
from . import release
from .reading import each

#: Lines of trouble that are shown; how many more there are is said.
SHOWN = 20

#: What Python loads or runs by itself: such a file without an owner is somebody's doing.
_LOADED = re.compile(r"\.(py|pyc|pth|so(\.\d+)*)$")

_CACHE = "__pycache__"


@dataclass(frozen=True)
class Expected:
    """A file of a release and the bytes it may have: its owners' own, or those of the release's receipt."""

    path: str
    digests: tuple[Digest, ...]


def apply(order: DeepOrder, author: Author) -> None:
    """Check the named releases and those that a unit is started from.

    Raises HostError naming every file that is not what it must be, as far as they go on ``SHOWN`` lines.
    """
    directory = Path(order.directory)
    asked = {*generations.users(receipt.read()), *order.names}
    used = [one.name for one in release.look(order.directory) if one.name in asked]
    wrong = [f"{directory / name}: it is not here. Deploy first." for name in order.names if name not in used]
    for name in used:
        wrong += _tell(directory / name)
    if wrong:
        raise HostError("\n".join(wrong))


def _tell(path: Path) -> list[str]:
    """Check a release and say so when it is as it was sealed; otherwise a paragraph about it."""
    began = time.monotonic()
    if not (path / release.RECEIPT).exists():
        return [f"{path}: {release.state(path).problem}. Deploy again."]
    wrong, files, size = check(path)
    release.note_damage(path, f"files that are not as they were sealed: {len(wrong)} of {files}" if wrong else "")
    problem = release.state(path).problem
    if not problem:
        say(f"{path.name}: all {files} files by hash, {size / 1e9:.1f} GB, {time.monotonic() - began:.0f} s: as sealed")
        return []
    shown = "".join(f"\n    {line}" for line in wrong[:SHOWN])
    more = f"\n    and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
    return [f"{path}: {problem}.{shown}{more}\n  Deploy: it is built again, beside the one that runs."]


def check(path: Path) -> tuple[list[str], int, int]:
    """What is wrong with a release, a line for each file, and how many files and bytes were read."""
    site = release.site_packages(path)
    expected = _expected(path, site)
    wrong = [line for lines in each(path.name, expected.values(), partial(_one, site)) for line in lines]
    wrong += _strangers(site, expected.keys())
    size = sum((site / one).stat().st_size for one in expected if (site / one).is_file())
    return sorted(wrong), len(expected), size


def _expected(path: Path, site: Path) -> dict[str, Expected]:
    """Every file by its path below site-packages. What the receipt says goes before what the RECORDs say."""
    digests: dict[str, tuple[Digest, ...]] = {}
    for one in everything(site):
        for name, digest in one.digests().items():
            digests[name] = (*digests.get(name, ()), *([digest] if digest else []))
    content = release.read(path)
    ours = {**content.get("misrecorded", {}), **content.get("overlaps", {}), **content["patched"]}
    digests.update({name: (Digest("sha256", bytes.fromhex(value), None),) for name, value in ours.items() if value})
    never = {name for name, value in ours.items() if not value}  # a RECORD lists it, and its wheel does not hold it
    return {name: Expected(name, many) for name, many in digests.items() if name not in never}


def _one(site: Path, expected: Expected) -> tuple[int, list[str]]:
    """Bytes of a file, and whether it is gone, has other bytes, can be written by others, or has stale byte code."""
    place = site / expected.path
    try:
        status = place.stat()
        if not stat.S_ISREG(status.st_mode):
            return 0, [f"{expected.path}: expected a file"]
        if expected.digests and not any(digest.is_of(place) for digest in expected.digests):
            return status.st_size, [f"{expected.path}: has other bytes"]
        if status.st_uid != 0 or status.st_mode & 0o022:
            return status.st_size, [f"{expected.path}: others than root may write it"]
        return status.st_size, list(_stale(site, expected.path, status))
    except FileNotFoundError:
        return 0, [f"{expected.path}: is gone"]
    except OSError as error:
        return 0, [f"{expected.path}: cannot be read: {error.strerror or error}"]


def _stale(site: Path, path: str, source: os.stat_result) -> Iterator[str]:
    """Byte code that Python would not take for its source (by time and size, see ``importlib``): read for nothing."""
    place = site / path
    tag = site.parent.name.replace("python", "cpython-").replace(".", "")
    code = place.parent / _CACHE / f"{place.stem}.{tag}.pyc"
    if place.suffix == ".py" and code.exists():
        with code.open("rb") as file:
            head = file.read(16)
        if head[4:] != bytes(4) + struct.pack("<II", int(source.st_mtime) & 0xFFFFFFFF, source.st_size & 0xFFFFFFFF):
            yield f"{path}: its byte code is of another source"


def _strangers(site: Path, owned: Iterable[str]) -> list[str]:
    """What Python would load and no distribution lists."""
    known = set(owned)
    found = []
    for top, directories, names in os.walk(site):
        inside = os.path.relpath(top, site)
        # Byte code in there is loaded for a source that is there; what the patches keep is no package.
        directories[:] = [one for one in directories if one != _CACHE and not one.startswith(".")]
        paths = (name if inside == "." else f"{inside}/{name}" for name in names if _LOADED.search(name))
        found += [f"{path}: belongs to no distribution" for path in paths if path not in known]
    return found
