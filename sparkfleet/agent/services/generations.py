"""What units were started from, kept so that a host can go back to what served.

A generation is a unit with its files as they were laid down, known by its digest. A served set is what a host served
when all of it was last verified: a generation for each of its units. Both outlive the recipes they came from.
"""

import contextlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .. import receipt, wire
from ..errors import HostError
from ..paths import write
from ..shapes import Author, Expectation, Served, Unit

#: For root alone, as some of the files are.
PATH = Path("/var/lib/sparkfleet/generations")

#: Served sets that are remembered.
MOST = 10


def keep(unit: Unit) -> None:
    """Keep ``unit`` and its files, before they are laid down."""
    place = _place(unit.name, unit.digest)
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write(place, wire.encode(unit) + "\n", 0o600)


def load(name: str, digest: str) -> Unit:
    """The generation ``digest`` of the unit ``name``. Raises HostError when it is not kept, or not to be understood."""
    try:
        return wire.recall(Unit, json.loads(_place(name, digest).read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise HostError(f"{name}: what it was started from before ({digest}) is not kept any more ({error}).") from None


def forget(keep_units: set[tuple[str, str]]) -> int:
    """Remove all generations but those of (unit, digest) in ``keep_units``; how many were removed."""
    gone = [path for path in PATH.glob("*/*.json") if (path.parent.name, path.stem) not in keep_units]
    for path in gone:
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # not empty
            path.parent.rmdir()
    return len(gone)


def current() -> dict[str, str]:
    """The generation of each unit that is on this host now, by the unit's name."""
    return digests(receipt.read())


def digests(content: dict[str, Any]) -> dict[str, str]:
    """The same, from a receipt that has been read."""
    return {name: str(entry.get("digest", "")) for name, entry in content.get("units", {}).items()}


def users(content: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """The units that are started from each release, by the release's name, from a receipt."""
    found: dict[str, tuple[str, ...]] = {}
    for name, entry in content.get("units", {}).items():
        release = Path(str(entry.get("release", ""))).name
        found[release] = (*found.get(release, ()), name)
    return found


def served(content: dict[str, Any]) -> tuple[Served, ...]:
    """The served sets in a receipt, oldest first; one that cannot be understood counts as none."""
    sets = content.get("served", {}).get("sets", [])
    found = []
    for entry in sets if isinstance(sets, list) else []:
        with contextlib.suppress(ValueError):
            found.append(wire.recall(Served, entry))
    return tuple(found)


def remember_served(
    author: Author, expectations: tuple[Expectation, ...], at: float, left: dict[str, str] | None = None
) -> None:
    """All that is on this host now was verified: remember it as the newest served set.

    ``left``: what the host was taken back to it from; a set stays one of these while nothing else serves, however often
    it is verified.
    """
    units = current()
    releases = {name: release for release, names in users(receipt.read()).items() for name in names}
    known = served(receipt.read())
    if left is None and known and known[-1].units == units:
        left = known[-1].left
    newest = Served(at, units, releases, expectations, left)
    others = [one for one in known if one.units != units]
    receipt.record(author, served={"sets": [asdict(one) for one in (*others, newest)][-MOST:]})


def _place(name: str, digest: str) -> Path:
    return PATH / name / f"{digest}.json"
