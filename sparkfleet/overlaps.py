"""Paths that several wheels would lay down with different bytes: whichever is installed last has them."""

import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from sparkfleet.catalog.engines import Overlap
from sparkfleet.errors import UserError

#: where a wheel's ``.data`` directory puts files beside its others
_SITE = ("purelib", "platlib")

Owners = dict[str, dict[str, tuple[int, int]]]


def undeclared(wheels: Mapping[str, Path], declared: Iterable[Overlap]) -> list[str]:
    """One line for each two distributions that own a path with different bytes and are not ``declared``.

    ``wheels``: path by distribution. Only their directories are read, which have a checksum (CRC-32) of each file.
    Raises UserError when a wheel is no archive.
    """
    known = {frozenset((one.winner, one.loser)) for one in declared}
    pairs: dict[tuple[str, str], list[str]] = {}
    for path, owners in _owners(wheels).items():
        names = sorted(owners)
        for n, one in enumerate(names):
            for other in names[n + 1 :]:
                if owners[one] != owners[other] and frozenset((one, other)) not in known:
                    pairs.setdefault((one, other), []).append(path)
    return [f"{one} and {other}: {_said(paths)}" for (one, other), paths in sorted(pairs.items())]


def _said(paths: list[str]) -> str:
    shown = ", ".join(sorted(paths)[:3])
    return shown + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")


def _owners(wheels: Mapping[str, Path]) -> Owners:
    found: Owners = {}
    for name, wheel in wheels.items():
        try:
            with zipfile.ZipFile(wheel) as archive:
                members = archive.infolist()
        except zipfile.BadZipFile:
            raise UserError(f"{wheel}: expected a wheel; it is no archive.") from None
        for member in members:
            if not member.is_dir():
                mark = (member.file_size, member.CRC)
                found.setdefault(_laid(member.filename), {})[name] = mark
    return {path: owners for path, owners in found.items() if len(owners) > 1}


def _laid(path: str) -> str:
    """Where a member comes to lie, below site-packages; what goes elsewhere keeps its ``scheme:`` before it."""
    first, _, rest = path.partition("/")
    if not first.endswith(".data"):
        return path
    scheme, _, inside = rest.partition("/")
    return inside if scheme in _SITE else f"{scheme}:{inside}"
