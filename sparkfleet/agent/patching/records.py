"""Installed distributions as their own ``.dist-info`` describes them: versions, files, hashes."""

import base64
import binascii
import csv
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import HostError
from ..names import normal

#: Hashes that a RECORD may use (the standard forbids md5 and sha1).
ALGORITHMS = ("sha256", "sha384", "sha512")


@dataclass(frozen=True)
class Digest:
    """The hash of a file as a RECORD gives it; ``size`` in bytes, None when not given."""

    algorithm: str
    value: bytes
    size: int | None


@dataclass
class Distribution:
    """One installed distribution; its RECORD is read once, when first asked for."""

    name: str
    version: str
    directory: Path
    _record: str | None = field(default=None, repr=False)

    def lists(self, path: str) -> bool:
        """Whether the RECORD names ``path``."""
        return _line(self._text(), path) is not None

    def digest(self, path: str) -> Digest | None:
        """The hash that the RECORD gives for ``path``; None when it gives none that can be used."""
        line = _line(self._text(), path)
        return parse_record(line).get(path) if line is not None else None

    def digests(self) -> dict[str, Digest | None]:
        """Every path of the RECORD."""
        return parse_record(self._text())

    def _text(self) -> str:
        if self._record is None:
            self._record = _read(self.directory / "RECORD")
        return self._record


def installed(site: Path, names: frozenset[str]) -> dict[str, tuple[Distribution, ...]]:
    """The distributions of ``names`` (normalised) in ``site``; more than one of a name is a broken installation."""
    found: dict[str, list[Distribution]] = {}
    try:
        with os.scandir(site) as entries:
            directories = sorted(entry.name for entry in entries if entry.name.endswith(".dist-info"))
    except OSError as error:
        raise HostError(f"{site}: cannot be listed: {error.strerror or error}.") from None
    for directory in directories:
        # The directory's name says enough to leave most unread; which distribution it is, METADATA says.
        if normal(directory).startswith(tuple(f"{name}-" for name in names)):
            one = _distribution(site / directory)
            if one.name in names:
                found.setdefault(one.name, []).append(one)
    return {name: tuple(found[name]) for name in sorted(found)}


def _distribution(directory: Path) -> Distribution:
    metadata = parse_metadata(_read(directory / "METADATA"))
    if not metadata.get("name") or not metadata.get("version"):
        raise HostError(f"{directory}/METADATA: has no Name or no Version. Reinstall the distribution.")
    return Distribution(normal(metadata["name"]), metadata["version"], directory)


def parse_metadata(text: str) -> dict[str, str]:
    """The headers of a METADATA file, lower-cased names, first of each; continuation lines are not joined."""
    headers: dict[str, str] = {}
    for line in re.split(r"\r\n|\r|\n", text):
        if not line:
            break  # the description follows, and may contain anything
        name, colon, value = line.partition(":")
        if colon and not line[0].isspace():
            headers.setdefault(name.strip().lower(), value.strip())
    return headers


def parse_record(text: str) -> dict[str, Digest | None]:
    """Paths and hashes of a RECORD; a line without a hash that can be used has None, a broken line is left out."""
    lines = re.split(r"\r\n|\r|\n", text)
    rows = csv.reader(line for line in lines if line and "\0" not in line)
    result: dict[str, Digest | None] = {}
    while True:
        try:
            row = next(rows)
        except StopIteration:
            return result
        except csv.Error:
            continue
        if row and row[0]:
            result[row[0]] = _digest(row)


def _digest(row: list[str]) -> Digest | None:
    algorithm, _, encoded = (row[1] if len(row) > 1 else "").partition("=")
    if algorithm not in ALGORITHMS or not encoded:
        return None
    try:
        value = base64.urlsafe_b64decode(encoded.encode("ascii") + b"=" * (-len(encoded) % 4))
    except (binascii.Error, UnicodeEncodeError):
        return None
    size = row[2] if len(row) > 2 else ""
    return Digest(algorithm, value, int(size) if size.isascii() and size.isdigit() else None)


def _line(record: str, path: str) -> str | None:
    # A RECORD has up to ten thousand lines and a patch asks for one: searching beats parsing by far. The catalog
    # allows only paths that need no quoting, so a line of ours begins with the path itself.
    if record.startswith(f"{path},"):
        start = 0
    else:
        start = record.find(f"\n{path},") + 1
        if start == 0:
            return None
    end = record.find("\n", start)
    return record[start : end if end >= 0 else None].rstrip("\r")


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8", errors="surrogateescape")
    except OSError as error:
        raise HostError(
            f"{path}: cannot be read: {error.strerror or error}. Without it nothing can be said about this "
            f"distribution's files; reinstall it."
        ) from None
