"""How fast a model can decode at the most: memory bandwidth over the bytes of weights that every token reads. Pure."""

from dataclasses import dataclass

from sparkfleet.agent.audit import kinds
from sparkfleet.agent.audit.shapes import Audit, Group

#: Bytes a second of a DGX Spark's memory (NVIDIA's data sheet: 273 GB/s); processor and GPU share them.
BANDWIDTH = 273e9

#: Groups that are too small to be worth a line, in bytes read a token.
_WORTH = 1_000_000

_MATRICES = (kinds.ATTENTION, kinds.LINEAR, kinds.EXPERTS, kinds.SHARED, kinds.ROUTER, kinds.MLP, kinds.HEAD)


@dataclass(frozen=True)
class Row:
    """All layers of one kind that are quantised in the same way."""

    kind: str
    method: str
    layers: int
    size: int
    read: int


def ceiling(audit: Audit, saved: int = 0) -> float:
    """Tokens a second of one stream at the most, if ``saved`` bytes a token were not read; 0: it reads nothing.

    Weights alone: keys, values and states come on top, so a long conversation is slower.
    """
    read = audit.read - saved
    return BANDWIDTH / read if read > 0 else 0.0


def leftovers(audit: Audit) -> tuple[Group, ...]:
    """What is left in 16 bits or more and read for every token, largest first: it decides the speed of a quantised
    model. Nothing of a model that is not quantised at all.
    """
    if all(group.method == "none" for group in audit.groups):
        return ()
    wide = (one for one in audit.groups if one.method == "none" and one.read >= _WORTH)
    return tuple(sorted(wide, key=lambda one: (-one.read, one.module)))


def rows(audit: Audit) -> tuple[Row, ...]:
    """The groups of ``audit`` by kind and method, those that cost most first."""
    found: dict[tuple[str, str], Row] = {}
    for one in audit.groups:
        old = found.get((one.kind, one.method), Row(one.kind, one.method, 0, 0, 0))
        layers = max(old.layers, one.layers)
        found[one.kind, one.method] = Row(one.kind, one.method, layers, old.size + one.size, old.read + one.read)
    return tuple(sorted(found.values(), key=lambda row: (-row.read, -row.size, row.kind)))


def in_eight_bits(audit: Audit) -> float:
    """The ceiling if the matrices among the leftovers were stored in eight bits."""
    wide = sum(one.read for one in leftovers(audit) if one.kind in _MATRICES)
    return ceiling(audit, wide // 2)
