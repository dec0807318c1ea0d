"""A lock of distributions in the requirements format, and the wheelhouse that should hold them."""

import re
from dataclasses import dataclass
from pathlib import Path

from ..errors import HostError
from ..names import normal
from ..paths import sha256


@dataclass(frozen=True)
class Pin:
    """One distribution at one version; ``hashes`` are the SHA-256 of the files that may be installed."""

    name: str
    version: str
    hashes: frozenset[str]


_WHEEL = re.compile(r"([A-Za-z0-9_][A-Za-z0-9._]*)-([A-Za-z0-9._+!]+)(?:-[A-Za-z0-9._]+){3,4}\.whl")
_LINE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;]+)\s*(?:;[^-]*?)?((?:\s*--hash=sha256:[0-9a-f]{64})*)")


def parse(lock: str) -> tuple[Pin, ...]:
    """Every pin of ``lock``.

    Raises HostError on a line that is not ``name==version --hash=sha256:...``.
    """
    joined = re.sub(r"\\\r?\n", " ", lock)
    lines = (line.split("#", 1)[0].strip() for line in joined.splitlines())
    return tuple(_pin(line) for line in lines if line)


def _pin(line: str) -> Pin:
    found = re.fullmatch(
        r"([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;]+)\s*(?:;[^-]*?)?((?:\s*--hash=sha256:[0-9a-f]{64})*)", line
    )
    if not found:
        raise HostError(f"lock: expected `name==version --hash=sha256:...`, found `{line[:120]}`.")
    hashes = frozenset(re.findall(r"sha256:([0-9a-f]{64})", found[3]))
    if not hashes:
        raise HostError(f"lock: {found[1]}=={found[2]} has no hash; a release is only built from hashed files.")
    return Pin(normal(found[1]), found[2], hashes)


def wheels_by_release(wheelhouse: Path) -> dict[tuple[str, str], list[Path]]:
    """Every wheel in a directory, by name and version. Raises HostError when the directory is not there."""
    if not wheelhouse.is_dir():
        raise HostError(f"{wheelhouse}: the wheelhouse is not there. Mount or copy it, or correct `wheelhouse`.")
    there: dict[tuple[str, str], list[Path]] = {}
    for path in sorted(wheelhouse.glob("*.whl")):
        if release := release_of(path.name):
            there.setdefault(release, []).append(path)
    return there


def release_of(wheel: str) -> tuple[str, str] | None:
    """Name and version in a wheel's file name; None when it is no such name (name, version, three tags: PEP 427)."""
    found = _WHEEL.fullmatch(wheel)
    return (normal(found[1]), found[2]) if found else None


def find_wheels(pins: tuple[Pin, ...], wheelhouse: Path) -> dict[str, Path]:
    """The wheel of each pin, by name, each byte checked.

    Raises HostError naming every wheel that is missing, and every one whose bytes are not those of the lock.
    """
    there = wheels_by_release(wheelhouse)
    found: dict[str, Path] = {}
    missing: list[str] = []
    wrong: list[str] = []
    for pin in pins:
        candidates = there.get((pin.name, pin.version), [])
        good = next((path for path in candidates if _hash(path) in pin.hashes), None)
        if good:
            found[pin.name] = good
        elif candidates:
            wrong.append(candidates[0].name)
        else:
            missing.append(f"{pin.name}=={pin.version}")
    if missing or wrong:
        raise HostError(_complaint(wheelhouse, missing, wrong))
    return found


def _hash(path: Path) -> str:
    try:
        return sha256(path)
    except OSError as error:
        raise HostError(f"{path}: the wheel cannot be read: {error.strerror or error}. Nothing was built.") from None


def _complaint(wheelhouse: Path, missing: list[str], wrong: list[str]) -> str:
    parts = []
    if wrong:
        parts.append(f"{', '.join(wrong)}: the bytes are not those of the lock (SHA-256 differs: cut short or foreign)")
    if missing:
        parts.append(f"missing: {', '.join(missing)}")
    return f"{wheelhouse}: {'; '.join(parts)}. Make the wheelhouse again, then run again. Nothing was built."
