"""What is asked about checkpoints, and what comes of it. Sizes are bytes."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Model:
    """A recipe's model: in ``path`` on the host, or still in ``source``, where a deploy takes it from."""

    recipe: str
    path: str
    source: str


@dataclass(frozen=True)
class AuditQuestion:
    models: tuple[Model, ...]


@dataclass(frozen=True)
class Group:
    """Layers that are alike: the same module, stored in the same way.

    ``kind``: what they are for. ``module``: their name, numbers left out. ``method``: how they are quantised, ``none``
    for 16 bits and more. ``stored``: data types in the files, the weights' own first. ``shape``: of the largest tensor.
    ``layers``: how many layers have it; ``size``: bytes of all of them; ``read``: those read for one token of one
    stream. ``excluded``: the configuration says that it is not to be quantised.
    """

    kind: str
    module: str
    method: str
    stored: str
    shape: tuple[int, ...]
    layers: int
    tensors: int
    size: int
    read: int
    excluded: bool = False


@dataclass(frozen=True)
class Audit:
    """What a checkpoint consists of, largest groups first; or ``trouble``, why that cannot be said.

    ``method``: how the configuration says that it is quantised. ``experts`` of which ``active`` are read for a token;
    0: there are none. ``notes``: what a reader of the figures should know.
    """

    recipe: str
    path: str
    architecture: str = ""
    method: str = ""
    experts: int = 0
    active: int = 0
    groups: tuple[Group, ...] = ()
    notes: tuple[str, ...] = ()
    trouble: str = ""

    @property
    def size(self) -> int:
        """Bytes of all weights."""
        return sum(group.size for group in self.groups)

    @property
    def read(self) -> int:
        """Bytes of weights that are read for one token of one stream."""
        return sum(group.read for group in self.groups)


@dataclass(frozen=True)
class Audits:
    audits: tuple[Audit, ...]
