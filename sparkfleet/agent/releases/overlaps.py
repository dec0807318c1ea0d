"""Paths that several distributions own with different bytes: as the declared winner has them, and proved so.

uv lays all distributions down at once, so which of two has the last word is chance. After it, every contested file is
laid down again out of the winner's wheel, whose hash was checked: through a file beside it and a rename, because what
uv laid down may be hard-linked. Installing the winner a second time would do too, but that first removes its files,
and with them what a third distribution owns; it unpacks all of the winner; and it proves nothing. This touches the
contested files only, and only those that are not right already.
"""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ..errors import HostError
from ..paths import mark, sha256
from ..shapes import Overlap

if TYPE_CHECKING:
    from ..patching.records import Digest, Distribution

#: Where a wheel's ``.data`` directory puts files beside its others.
_SITE = ("purelib", "platlib")

#: Bytes from which on a file is known by inode, size and time at the start of a unit, which must not wait for a hash:
#: of 191 MB of contested files in vLLM 0.20.1, 188 are two libraries. A deep verification reads them all.
LARGE = 4 * 1024 * 1024

Mark = TypeVar("Mark")
Owners = Mapping[str, Mapping[str, Mark]]
"""By path: what each distribution that owns it says its bytes are."""


@dataclass(frozen=True)
class Contested:
    """A path that several distributions own with different bytes: who wins, and what the file must then be."""

    path: str
    winner: str
    digest: Digest


def resolve(site: Path, declared: Iterable[Overlap], wheels: Mapping[str, Path]) -> tuple[str, ...]:
    """Lay down anew, from ``wheels`` (by distribution), what is contested and not its winner's; the paths of these.

    Raises HostError, before anything is written, when a path is contested and ``declared`` does not say who wins.
    """
    wrong = [one for one in contested(site, declared) if not one.digest.is_of(site / one.path)]
    for winner in sorted({one.winner for one in wrong}):
        with zipfile.ZipFile(wheels[winner]) as archive:
            members = {laid(member.filename): member for member in archive.infolist()}
            for one in (one for one in wrong if one.winner == winner):
                if one.path not in members:
                    raise HostError(f"{site / one.path}: {winner}'s by its RECORD, but {wheels[winner].name} lacks it.")
                _lay(archive, members[one.path], site / one.path)
    return tuple(one.path for one in wrong)


def verify(site: Path, declared: Iterable[Overlap]) -> dict[str, str]:
    """The SHA-256 of every contested file, once every file with several owners was found to be what it must be.

    Raises HostError when a file is not its winner's by the winner's RECORD, when one that all owners have alike has
    other bytes, or when a path is contested and ``declared`` does not say who wins.
    """
    declared = tuple(declared)
    owners = _all(site)
    fought = contested(site, declared, owners)
    winners = {one.path: (one.winner, one.digest) for one in fought}
    for path, digests in owners.items():
        winner, digest = winners.get(path) or next(iter(digests.items()))
        if not digest.is_of(site / path):
            raise HostError(
                f"{site / path}: expected the file of {winner} by its RECORD, found another. It is owned by "
                f"{' and '.join(sorted(digests))}."
            )
    return {one.path: sha256(site / one.path) for one in fought}


def marks(site: Path, paths: Iterable[str]) -> dict[str, list[int]]:
    """Inode, size and time of those files that are too large to be hashed at every start of a unit."""
    found = {path: mark(site / path) for path in paths}
    return {path: one for path, one in found.items() if one[1] > LARGE}


def difference(site: Path, hashes: Mapping[str, str], marked: Mapping[str, list[int]]) -> str:
    """Which of the contested files is not as it was verified; empty when all are. Those in ``marked`` are not read."""
    for path, digest in hashes.items():
        place = site / path
        if not place.is_file() or (mark(place) != marked[path] if path in marked else sha256(place) != digest):
            return f"{path}, which several distributions own, was changed after it was verified"
    return ""


def contested(site: Path, declared: Iterable[Overlap], owners: Owners[Digest] | None = None) -> tuple[Contested, ...]:
    """Every path that distributions in ``site`` own with different bytes, and who wins it.

    Raises HostError naming distributions and paths when ``declared`` does not say.
    """
    declared = tuple(declared)
    owners = _all(site) if owners is None else owners
    values = {path: {name: digest.value for name, digest in digests.items()} for path, digests in owners.items()}
    if pairs := undeclared(values, declared):
        raise HostError(
            f"{site}: distributions own the same paths with different bytes, and the engine's file does not say which "
            f"wins. {'; '.join(pairs)}. Pin others, or declare them under `overlaps`."
        )
    beaten = {(one.loser, one.winner) for one in declared}
    found = []
    for path, digests in sorted(owners.items()):
        if len(set(values[path].values())) == 1:
            continue
        unbeaten = [name for name in digests if not any((name, other) in beaten for other in digests)]
        if len({values[path][name] for name in unbeaten}) != 1:
            raise HostError(f"{site / path}: `overlaps` names {' and '.join(sorted(digests))} in a circle.")
        found.append(Contested(path, unbeaten[0], digests[unbeaten[0]]))
    return tuple(found)


def undeclared(owners: Owners[Mark], declared: Iterable[Overlap]) -> list[str]:
    """One line for each two distributions that own a path with different bytes and are not ``declared``."""
    known = {frozenset((one.winner, one.loser)) for one in declared}
    pairs: dict[tuple[str, str], list[str]] = {}
    for path, marks in owners.items():
        names = sorted(marks)
        for n, one in enumerate(names):
            for other in names[n + 1 :]:
                if marks[one] != marks[other] and frozenset((one, other)) not in known:
                    pairs.setdefault((one, other), []).append(path)
    return [f"{one} and {other}: {_said(paths)}" for (one, other), paths in sorted(pairs.items())]


def laid(member: str) -> str:
    """Where a wheel's member comes to lie, below site-packages; what goes elsewhere keeps its ``scheme:`` before it."""
    first, _, rest = member.partition("/")
    if not first.endswith(".data"):
        return member
    scheme, _, inside = rest.partition("/")
    return inside if scheme in _SITE else f"{scheme}:{inside}"


def _all(site: Path) -> dict[str, dict[str, Digest]]:
    from ..patching.records import everything  # here, because a guard only compares marks, and has little time

    return _owners(everything(site))


def _owners(distributions: Iterable[Distribution]) -> dict[str, dict[str, Digest]]:
    """Every path that more than one distribution owns."""
    found: dict[str, dict[str, Digest | None]] = {}
    for one in distributions:
        for path, digest in one.digests().items():
            found.setdefault(path, {})[one.name] = digest
    return {path: _hashed(path, digests) for path, digests in found.items() if len(digests) > 1}


def _hashed(path: str, digests: Mapping[str, Digest | None]) -> dict[str, Digest]:
    known = {name: digest for name, digest in digests.items() if digest}
    if bare := sorted(digests.keys() - known.keys()):
        raise HostError(
            f"{path}: owned by {' and '.join(sorted(digests))}, and the RECORD of {bare[0]} has no hash for it, so "
            f"nobody can say whose it is."
        )
    return known


def _lay(archive: zipfile.ZipFile, member: zipfile.ZipInfo, place: Path) -> None:
    beside = place.with_name(f".{place.name}.sparkfleet-new")
    with archive.open(member) as source, beside.open("xb") as target:
        shutil.copyfileobj(source, target, 1024 * 1024)
    beside.chmod(0o755 if member.external_attr >> 16 & 0o111 else 0o644)
    beside.replace(place)


def _said(paths: list[str]) -> str:
    shown = ", ".join(sorted(paths)[:3])
    return shown + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
