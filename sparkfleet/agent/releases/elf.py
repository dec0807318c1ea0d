"""What a compiled file asks of the machine, read from its own headers (ELF, 64 bits, little-endian: all of Linux here).

Layout: System V ABI, chapters 4 and 5 (``elf.h``).
"""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ..errors import HostError

#: ``e_machine`` by the name that ``uname`` gives the architecture.
_MACHINES = {62: "x86_64", 183: "aarch64"}

_LOAD, _DYNAMIC = 1, 2  # p_type
_NEEDED, _STRTAB, _STRSZ = 1, 5, 10  # d_tag


@dataclass(frozen=True)
class Elf:
    """``machine``: as ``uname`` says it, empty for one not known here. ``needed``: the libraries it is linked to."""

    machine: str
    needed: tuple[str, ...]


@dataclass(frozen=True)
class _Segment:
    kind: int
    offset: int
    address: int
    size: int


def read(path: Path) -> Elf:
    """The headers of ``path``. Raises HostError when it is no such file."""
    try:
        with path.open("rb") as file:
            head = file.read(64)
            if head[:6] != b"\x7fELF\x02\x01":
                raise ValueError("no ELF file of 64 bits")
            (machine,) = struct.unpack_from("<H", head, 18)
            return Elf(_MACHINES.get(machine, ""), _needed(file, _segments(file, head)))
    except (OSError, ValueError, struct.error) as error:
        raise HostError(f"{path}: expected a compiled library, found something else ({error}).") from None


def _segments(file: BinaryIO, head: bytes) -> list[_Segment]:
    (table,) = struct.unpack_from("<Q", head, 32)
    size, count = struct.unpack_from("<HH", head, 54)
    found = []
    for number in range(count):
        kind, _, offset, address, _, length = struct.unpack_from("<IIQQQQ", _at(file, table + number * size, size))
        found.append(_Segment(kind, offset, address, length))
    return found


def _needed(file: BinaryIO, segments: list[_Segment]) -> tuple[str, ...]:
    dynamic = next((one for one in segments if one.kind == _DYNAMIC), None)
    if dynamic is None:
        return ()
    entries = list(struct.iter_unpack("<QQ", _at(file, dynamic.offset, dynamic.size // 16 * 16)))
    values = dict(entries)
    strings = _at(file, _offset(segments, values[_STRTAB]), values[_STRSZ]) if _STRTAB in values else b""
    return tuple(strings[name : strings.index(b"\0", name)].decode() for tag, name in entries if tag == _NEEDED)


def _offset(segments: list[_Segment], address: int) -> int:
    """Where in the file lies what is loaded at ``address``."""
    for one in segments:
        if one.kind == _LOAD and one.address <= address < one.address + one.size:
            return one.offset + address - one.address
    raise ValueError("its dynamic section points outside")


def _at(file: BinaryIO, offset: int, size: int) -> bytes:
    file.seek(offset)
    data = file.read(size)
    if len(data) != size:
        raise ValueError("cut short")
    return data
