"""The files that patches touch: read once, recognised by the records of their distributions and by our own edits."""

import hashlib
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import HostError
from . import edits
from .records import Digest, Distribution
from .shapes import Patch, Target

#: A patch with one of its targets.
Aim = tuple[Patch, Target]


@dataclass(frozen=True)
class File:
    """One file as it is. ``original`` is what its ``owner`` shipped, None when that cannot be told (then ``problem``).

    ``earlier``: the file has a form that an earlier sparkfleet gave it, and the original is the one it kept.
    """

    path: str
    data: bytes | None
    owner: str
    original: bytes | None
    applied: frozenset[str]
    earlier: bool = False
    problem: str = ""


def sha256(data: bytes) -> str:
    """SHA-256 as hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def read(site: Path, path: str) -> bytes | None:
    """The bytes of a file of ``site``; None when it is gone.

    Raises HostError when it cannot be read, or is reached by a link that leaves ``site``: that file is not ours.
    """
    place = site / path
    try:
        inside = os.path.realpath(place.parent) if _linked(site, path) else str(site)
        if os.path.commonpath((inside, site)) != str(site):
            raise HostError(
                f"{place}: its directory is a link to {inside}, outside {site}. Patch it there, or install a copy."
            )
        return place.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise HostError(f"{place}: cannot be read: {error.strerror or error}.") from None


def _linked(site: Path, path: str) -> bool:
    """Whether a directory between ``site`` and the file is a link."""
    parts = path.split("/")[:-1]
    return any(os.path.islink(f"{site}/{'/'.join(parts[:depth])}") for depth in range(1, len(parts) + 1))


def recognise(
    site: Path,
    path: str,
    aims: Sequence[Aim],
    owners: Mapping[str, Distribution],
    kept: Mapping[str, bytes],
) -> File:
    """What the file at ``path`` is.

    ``owners`` are the distributions that list it; ``kept`` are originals of an earlier change, by the SHA-256 of
    the patched file that replaced them.
    """
    data = read(site, path)
    if data is None:
        return File(
            path, None, min(owners), None, frozenset(), problem=f"listed in the RECORD of {min(owners)}, but gone"
        )
    digests = {name: owner.digest(path) for name, owner in owners.items()}
    for name, digest in digests.items():
        if matches(data, digest):
            return File(path, data, name, data, frozenset())
    for name, digest in digests.items():
        original, applied = strip(data, [aim for aim in aims if aim[1].distribution == name])
        if applied and matches(original, digest):
            return File(path, data, name, original, applied)
    before = kept.get(sha256(data))
    for name, digest in digests.items():
        if before is not None and matches(before, digest):
            return File(path, data, name, before, frozenset(), earlier=True)
    return File(path, data, min(owners), None, frozenset(), problem=_strange(data, digests))


def strip(data: bytes, aims: Sequence[Aim]) -> tuple[bytes, frozenset[str]]:
    """Take back every patch that seems to be in ``data``; which those were. Only a hash can tell that it was right."""
    applied = set()
    for patch, target in reversed(aims):
        if target.edits:
            try:
                data = edits.backward(data, target.edits)
                applied.add(patch.id)
            except edits.EditError:
                continue
    return data, frozenset(applied)


def dress(original: bytes, aims: Sequence[Aim]) -> bytes:
    """``original`` with the patches of ``aims``, in order.

    Raises EditError when an anchor is not there exactly once, HostError when patches are in each other's way or the
    result is not Python.
    """
    data = original
    for _, target in aims:
        data = edits.forward(data, target.edits)
    names = ", ".join(patch.id for patch, _ in aims)
    if strip(data, aims) != (original, frozenset(patch.id for patch, _ in aims)):
        raise HostError(f"{aims[0][1].path}: the patches {names} are in each other's way and cannot be told apart.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what upstream's own text deserves is not ours to say
            compile(data, aims[0][1].path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise HostError(
            f"{aims[0][1].path}: with {names} it is no longer Python ({error}). Nothing was changed."
        ) from None
    return data


def matches(data: bytes, digest: Digest | None) -> bool:
    """Whether ``data`` is what a RECORD says."""
    if digest is None or (digest.size is not None and digest.size != len(data)):
        return False
    return hashlib.new(digest.algorithm, data).digest() == digest.value


def _strange(data: bytes, digests: Mapping[str, Digest | None]) -> str:
    owners = " or ".join(digests)
    if not any(digests.values()):
        return f"the RECORD of {owners} has no hash for it, so nobody can say what it should be"
    return (
        f"neither as {owners} shipped it nor in our form (SHA-256 {sha256(data)[:12]}...): edited by hand or by "
        f"another tool. Reinstall {owners} (pip install --force-reinstall --no-deps), then apply again"
    )
