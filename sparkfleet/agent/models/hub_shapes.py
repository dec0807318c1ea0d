"""What passes between the agent and the process that fetches from a hub: an order one way, events the other."""

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class HubFile:
    """A file as the hub lists it; ``key`` names its bytes: ``sha256-…``, or ``git-…`` (the SHA-1 of a git blob)."""

    name: str
    size: int
    key: str


@dataclass(frozen=True)
class FetchOrder:
    """Have every file of a revision in ``directory``, each called by its key.

    ``files``: the listing, if it is known; empty has the hub asked for it. ``interval``: seconds between two reports;
    ``patience``: seconds to go on while nothing at all comes; ``token``: a secret.
    """

    repository: str
    revision: str
    endpoint: str | None
    directory: str
    files: tuple[HubFile, ...]
    token: str | None = field(repr=False)
    interval: float
    patience: float


@dataclass(frozen=True)
class Listing:
    """What the revision consists of, as far as an engine needs it."""

    commit: str
    files: tuple[HubFile, ...]


@dataclass(frozen=True)
class Have:
    """The answer to a listing: the keys that are here already."""

    keys: tuple[str, ...]


@dataclass(frozen=True)
class Progress:
    """What there is of the revision now."""

    files: int
    bytes: int


@dataclass(frozen=True)
class Complete:
    """The file of this key has all its bytes."""

    key: str


@dataclass(frozen=True)
class Waiting:
    seconds: float
    why: str


TroubleKind = Literal[
    "gated", "token", "denied", "repository", "revision", "entry", "busy", "hub", "network", "full", "truncated",
    "changed", "not-a-hub", "files", "other",
]  # fmt: skip


@dataclass(frozen=True)
class Trouble:
    """Why fetching ended. ``passing``: the same request may work later; ``retry_after``: the hub said when."""

    kind: TroubleKind
    name: str
    detail: str
    passing: bool = False
    retry_after: float | None = None


EVENTS: dict[str, type] = {kind.__name__: kind for kind in (Listing, Progress, Complete, Waiting, Trouble)}
