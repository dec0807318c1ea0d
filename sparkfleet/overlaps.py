"""Paths that several wheels would lay down with different bytes: whichever is installed last has them."""

import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from sparkfleet.agent.releases import overlaps
from sparkfleet.catalog.engines import Overlap
from sparkfleet.errors import UserError


def undeclared(wheels: Mapping[str, Path], declared: Iterable[Overlap]) -> list[str]:
    """One line for each two distributions that own a path with different bytes and are not ``declared``.

    ``wheels``: path by distribution. Only their directories are read, which have a checksum (CRC-32) of each file.
    Raises UserError when a wheel is no archive.
    """
    return overlaps.undeclared(_owners(wheels), [one.order for one in declared])


def _owners(wheels: Mapping[str, Path]) -> dict[str, dict[str, tuple[int, int]]]:
    found: dict[str, dict[str, tuple[int, int]]] = {}
    for name, wheel in wheels.items():
        try:
            with zipfile.ZipFile(wheel) as archive:
                members = archive.infolist()
        except zipfile.BadZipFile:
            raise UserError(f"{wheel}: expected a wheel; it is no archive.") from None
        for member in members:
            if not member.is_dir():
                found.setdefault(overlaps.laid(member.filename), {})[name] = (member.file_size, member.CRC)
    return found
