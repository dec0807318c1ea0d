"""The host's memory of what sparkfleet laid down: one JSON file, replaced as a whole, written last.

Sections: ``account``, ``files``, ``release``, ``weights``, ``units``, ``verified``, ``served``. A receipt of a newer
sparkfleet is refused, one of an older is read.
"""

import contextlib
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import HostError
from .paths import write
from .shapes import SCHEMA, Author, Receipt, Verified
from .wire import WireError, build, recall

PATH = Path("/var/lib/sparkfleet/receipt.json")

_RESTORE = "Restore it from a backup, or move it away to have sparkfleet lay everything down again."


@dataclass(frozen=True)
class _Account:
    name: str = ""
    uid: int | None = None
    gid: int | None = None
    created: bool = False


@dataclass(frozen=True)
class _Unit:
    release: str = ""
    digest: str = ""
    suspect: str = ""
    files: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Model:
    path: str = ""
    files: dict[str, tuple[Any, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Content:
    """What of a receipt is relied on: it is a file, and files are cut short and edited."""

    changed_at: float = 0.0
    account: _Account = _Account()
    directories: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    units: dict[str, _Unit] = field(default_factory=dict)
    weights: dict[str, _Model] = field(default_factory=dict)
    release: dict[str, Any] = field(default_factory=dict)
    verified: dict[str, Any] = field(default_factory=dict)
    served: dict[str, Any] = field(default_factory=dict)
    vocab: dict[str, Any] = field(default_factory=dict)


def read() -> dict[str, Any]:
    """The receipt, or an empty mapping where there is none.

    Raises HostError when it cannot be understood: guessing what is ours is how other people's files get lost.
    """
    try:
        content = json.loads(PATH.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (ValueError, OSError, RecursionError) as error:
        raise HostError(f"{PATH}: the receipt cannot be read ({error}). {_RESTORE}") from None
    schema = content.get("schema") if isinstance(content, dict) else None
    if type(schema) is not int or schema > SCHEMA:
        raise HostError(
            f"{PATH}: expected receipt schema {SCHEMA} or older, found {schema}. A newer sparkfleet "
            f"(revision {_revision(content)}) manages this host: deploy with that one or newer."
        )
    assert isinstance(content, dict)
    try:
        relied = recall(_Content, content)
    except WireError as error:
        raise HostError(f"{PATH}: {str(error).removeprefix('_Content.')}. {_RESTORE}") from None
    if odd := [name for one in relied.weights.values() for name, marks in one.files.items() if len(marks) != 4]:
        raise HostError(f"{PATH}: weights: {odd[0]} is not described as it should be. {_RESTORE}")
    return content


def record(author: Author, **sections: Any) -> None:
    """Replace the named sections, keep the others."""
    content = read()
    content.update(sections)
    content.update(schema=SCHEMA, revision=author.revision, user=author.user, changed_at=round(time.time(), 1))
    write(PATH, json.dumps(content, indent=1, sort_keys=True) + "\n", 0o644)


def summary(content: dict[str, Any]) -> Receipt | None:
    """The part of a receipt that a plan is compared with."""
    if not content:
        return None
    units = content.get("units", {})
    return Receipt(
        schema=content["schema"],
        revision=str(content.get("revision", "")),
        user=str(content.get("user", "")),
        changed_at=float(content.get("changed_at", 0.0)),
        units=tuple(units),
        suspects=tuple(str(entry["suspect"]) for entry in units.values() if entry.get("suspect")),
    )


def verified(content: dict[str, Any]) -> tuple[Verified, ...]:
    """The last verification of each recipe; one of another version counts as none."""
    outcomes = []
    for entry in content.get("verified", {}).values():
        with contextlib.suppress(ValueError):
            outcomes.append(build(Verified, entry))
    return tuple(outcomes)


def _revision(content: Any) -> str:
    return str(content.get("revision", "unknown")) if isinstance(content, dict) else "unknown"
