"""Files that a wheel's own RECORD is wrong about.

pynvvideocodec 2.0.4, which is in the lock of vLLM 0.33.0, holds two libraries that were changed after its RECORD was
written; uv lays them down without a word. What counts is the wheel, whose hash is the lock's. So a build reads every
file once, and one that is not as its RECORD says must be, byte for byte, what its wheel holds.
"""

import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path

from ..errors import HostError
from ..patching.records import Digest, everything
from ..paths import sha256
from . import overlaps
from .reading import each

_CHUNK = 1024 * 1024


def find(site: Path, wheels: Mapping[str, Path]) -> dict[str, str]:
    """The SHA-256 of each such file by its path, empty for one that a RECORD lists and its wheel does not hold.

    ``wheels`` by distribution. Files with several owners are left to ``overlaps``. Raises HostError when a file is
    neither what its RECORD says nor what its wheel holds.
    """
    owners: dict[str, list[tuple[str, Digest | None]]] = {}
    for one in everything(site):
        for path, digest in one.digests().items():
            owners.setdefault(path, []).append((one.name, digest))
    single = [(path, *whose[0]) for path, whose in owners.items() if len(whose) == 1]
    right = each("files of the wheels", single, lambda one: _is_right(site / one[0], one[2]))
    wrong = [(path, name) for (path, name, _), good in zip(single, right, strict=True) if not good]
    return {path: _of_its_wheel(site / path, path, wheels[name]) for path, name in wrong}


def _is_right(place: Path, digest: Digest | None) -> tuple[int, bool]:
    """Bytes that were read, and whether a file is as its RECORD says."""
    if digest is None:
        return 0, place.exists()
    return (place.stat().st_size, digest.is_of(place)) if place.is_file() else (0, False)


def _of_its_wheel(place: Path, path: str, wheel: Path) -> str:
    with zipfile.ZipFile(wheel) as archive:
        members = {overlaps.laid(member.filename): member for member in archive.infolist()}
        if path not in members and not place.exists():
            return ""
        digest = hashlib.sha256()
        if path in members:
            with archive.open(members[path]) as source:
                while chunk := source.read(_CHUNK):
                    digest.update(chunk)
    if path not in members or not place.is_file() or sha256(place) != digest.hexdigest():
        raise HostError(
            f"{place}: expected the bytes that {wheel.name} holds, found others. The disk or its memory may be "
            f"failing: look at `journalctl -k`, then run again."
        )
    return digest.hexdigest()
