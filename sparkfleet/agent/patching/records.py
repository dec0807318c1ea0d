"""Installed distributions as their own ``.dist-info`` describes them: versions, files, hashes."""

import base64
import binascii
import csv
import hashlib
import json
import os
import posixpath
import re
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import HostError
from ..names import normal

#: Hashes that a RECORD may use (the standard forbids md5 and sha1).
ALGORITHMS = ("sha256", "sha384", "sha512")

_HEAD = 4096
_CHUNK = 1024 * 1024

_BREAK = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True)
class Digest:
    """The hash of a file as a RECORD gives it; ``size`` in bytes, None when not given."""

    algorithm: str
    value: bytes
    size: int | None

    def is_of(self, path: Path) -> bool:
        """Whether a file has these bytes. Raises HostError when it cannot be read."""
        try:
            if self.size is not None and path.stat().st_size != self.size:
                return False
            return self.value == _hash(path, self.algorithm)
        except OSError as error:
            raise HostError(f"{path}: cannot be read: {error.strerror or error}.") from None


@dataclass
class Distribution:
    """One installed distribution; its RECORD is read once, when first asked for."""

    name: str
    version: str
    directory: Path
    _record: bytes | None = field(default=None, repr=False)
    _found: dict[str, str | None] = field(default_factory=dict, repr=False)
    _digests: dict[str, Digest | None] | None = field(default=None, repr=False)

    def lists(self, path: str) -> bool:
        """Whether the RECORD names ``path``."""
        return self._entry(path) is not None

    def digest(self, path: str) -> Digest | None:
        """The hash that the RECORD gives for ``path``; None when it gives none that can be used."""
        entry = self._entry(path)
        return parse_record(entry).get(path) if entry is not None else None

    def digests(self) -> dict[str, Digest | None]:
        """Every path of the RECORD."""
        if self._digests is None:
            self._digests = parse_record(_text(self._bytes()))
        return self._digests

    def unreadable(self) -> str:
        """Why the RECORD does not say where the package's files are, with the remedy; empty when it does."""
        remedy = f"Install {self.name} {self.version} from a wheel into this directory, then apply again"
        if self._editable():
            return f"{self.name} {self.version} is an editable install, its files are elsewhere. {remedy}"
        # The first lines nearly always have one; parsing all ten thousand takes longer than the rest of a status.
        head = parse_record(_text(self._bytes()[:_HEAD]))
        if not any(map(_of_a_package, head)) and not any(map(_of_a_package, self.digests())):
            return f"the RECORD of {self.name} {self.version} lists no file of the package. {remedy}"
        return ""

    def _editable(self) -> bool:
        if b"__editable__" in self._bytes():
            return True
        try:
            origin = json.loads((self.directory / "direct_url.json").read_bytes())
            return bool(origin["dir_info"]["editable"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return False  # of a wheel, or nothing that an installer writes

    def _entry(self, path: str) -> str | None:
        if path not in self._found:
            record = self._bytes()
            self._found[path] = _line(record, path) or _odd_line(record, path)
        return self._found[path]

    def _bytes(self) -> bytes:
        if self._record is None:
            self._record = _read(self.directory / "RECORD")
        return self._record


def everything(site: Path) -> tuple[Distribution, ...]:
    """Every distribution in ``site``."""
    return tuple(_distribution(site / directory) for directory in _directories(site))


def installed(site: Path, names: frozenset[str]) -> dict[str, tuple[Distribution, ...]]:
    """The distributions of ``names`` (normalised) in ``site``; more than one of a name is a broken installation."""
    found: dict[str, list[Distribution]] = {}
    for directory in _directories(site):
        # The directory's name says enough to leave most unread; which distribution it is, METADATA says.
        if normal(directory).startswith(tuple(f"{name}-" for name in names)):
            one = _distribution(site / directory)
            if one.name in names:
                found.setdefault(one.name, []).append(one)
    return {name: tuple(found[name]) for name in sorted(found)}


def _directories(site: Path) -> list[str]:
    try:
        with os.scandir(site) as entries:
            return sorted(entry.name for entry in entries if entry.name.endswith(".dist-info"))
    except OSError as error:
        raise HostError(f"{site}: cannot be listed: {error.strerror or error}.") from None


def _distribution(directory: Path) -> Distribution:
    # Name and Version come first; what follows is a description of a hundred kilobytes.
    metadata = parse_metadata(_text(_read(directory / "METADATA", _HEAD)))
    if not metadata.get("name") or not metadata.get("version"):
        metadata = parse_metadata(_text(_read(directory / "METADATA")))
    if not metadata.get("name") or not metadata.get("version"):
        raise HostError(f"{directory}/METADATA: has no Name or no Version. Reinstall the distribution.")
    return Distribution(normal(metadata["name"]), metadata["version"], directory)


def parse_metadata(text: str) -> dict[str, str]:
    """The headers of a METADATA file, lower-cased names, first of each; continuation lines are not joined."""
    headers: dict[str, str] = {}
    for line in _BREAK.split(text.partition("\n\n")[0]):
        if not line:
            break  # the description follows, and may contain anything
        name, colon, value = line.partition(":")
        if colon and not line[0].isspace():
            headers.setdefault(name.strip().lower(), value.strip())
    return headers


def parse_record(text: str) -> dict[str, Digest | None]:
    """Paths and hashes of a RECORD; a line without a hash that can be used has None, a broken line is left out.

    Paths are normalised: ``./`` and backslashes are some installer's way to write the same path.
    """
    lines = _BREAK.split(text.removeprefix("\ufeff"))
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
            result[_plain(row[0])] = _digest(row)


def _plain(path: str) -> str:
    path = path.replace("\\", "/")
    return posixpath.normpath(path) if "./" in path or "//" in path else path


def _of_a_package(path: str) -> bool:
    top, slash, _ = path.partition("/")
    if slash:
        return bool(top) and top != ".." and not top.endswith((".dist-info", ".data"))
    return top.endswith((".py", ".so"))


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


def _line(record: bytes, path: str) -> str | None:
    # A RECORD has up to ten thousand lines and a patch asks for one: searching beats parsing by far. The catalog
    # allows only paths that need no quoting, so a line of ours begins with the path itself.
    start = f"{path},".encode()
    at = 0 if record.startswith(start) else record.find(b"\n" + start) + 1
    if not record.startswith(start, at):
        return None
    end = record.find(b"\n", at)
    return _text(record[at : end if end >= 0 else None]).rstrip("\r")


def _odd_line(record: bytes, path: str) -> str | None:
    # Quoted, with another separator, behind a byte order mark, between carriage returns: rare, so only lines that
    # have the file's name are parsed, each by itself because a quote that is not closed swallows what follows.
    name = path.rpartition("/")[2].encode()
    if name not in record:
        return None
    lines = (_text(line) for line in record.splitlines() if name in line)
    return next((line for line in lines if path in parse_record(line)), None)


def _hash(path: Path, algorithm: str) -> bytes:
    running = hashlib.new(algorithm)
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            running.update(chunk)
    return running.digest()


def _text(data: bytes) -> str:
    return data.decode("utf-8", errors="surrogateescape")


def _read(path: Path, most: int = -1) -> bytes:
    try:
        with path.open("rb", buffering=0) as file:
            return file.read(most)
    except OSError as error:
        raise HostError(
            f"{path}: cannot be read: {error.strerror or error}. Without it nothing can be said about this "
            f"distribution's files; reinstall it."
        ) from None
