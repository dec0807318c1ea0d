"""Memory admission: which recipes of a host may run together, which exclude each other, which can never run there.

A Spark has one memory for CPU and GPU. An engine that is given more than there is does not fail: the machine freezes
until somebody presses the power button, and no cgroup limit sees what CUDA takes. So the sum decides, before a start.

All figures are GiB.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sparkfleet.errors import UserError

#: vLLM's own reading of free memory on a GB10 is 2.6 to 2.7 GiB below MemAvailable, which its CUDA context takes
#: before it looks; a start must leave that much. Measured by others: llamastash#80, NVIDIA/xr-ai#519 (2026).
CONTEXT_MARGIN = 3.0

#: Fractions are passed to the engine with three digits.
_DIGITS = 1000


@dataclass(frozen=True)
class Need:
    """What one recipe takes. ``start_spike`` is on top of the others while it starts."""

    recipe: str
    weights: float
    kv: float
    overhead: float
    start_spike: float
    gpu: bool = True

    @property
    def serving(self) -> float:
        """What it takes while it serves."""
        return self.weights + self.kv + self.overhead

    @property
    def starting(self) -> float:
        """What must be available when it starts: at least its CUDA context on top of what it will serve from."""
        return self.serving + (max(self.start_spike, CONTEXT_MARGIN) if self.gpu else self.start_spike)

    @property
    def arithmetic(self) -> str:
        """The sum, for people: ``weights 60.8 + KV 2.3 + overhead 6.0 + start 4.0 = 73.1 GiB``."""
        start = self.starting - self.serving
        return (
            f"weights {self.weights:.1f} + KV {self.kv:.1f} + overhead {self.overhead:.1f} + start {start:.1f} "
            f"= {self.starting:.1f} GiB"
        )


@dataclass(frozen=True)
class Admission:
    """What fits on one host. ``conflicts``: for each recipe those that it cannot run beside; both sides name it.

    ``running``: those that are to run, the first named of any that exclude each other. ``largest``: GiB of the largest
    set that may come to run together. ``notes``: why recipes exclude each other, one line each.
    """

    conflicts: Mapping[str, tuple[str, ...]]
    running: tuple[str, ...]
    largest: float
    notes: tuple[str, ...]


def admit(needs: Sequence[Need], total: float, reserve: float) -> Admission:
    """Decide for the recipes of one host, in the order in which its inventory names them.

    ``total``: the machine's MemTotal. ``reserve``: what is left to the operating system.
    Raises UserError, with the arithmetic, for a recipe that does not fit alone.
    """
    room = total - reserve
    for need in needs:
        if need.starting > room:
            raise UserError(
                f"recipe {need.recipe} does not fit: {need.arithmetic}, and {reserve:.1f} GiB stay with the operating "
                f"system; the machine has {total:.1f} GiB. Give this host a smaller recipe, or this recipe a shorter "
                f"context."
            )
    sizes = {need.recipe: need.starting for need in needs}
    excluded: dict[str, set[str]] = {name: set() for name in sizes}
    notes = []
    while _sum(together := _largest(tuple(sizes), sizes, excluded), sizes) > room:
        one, other = _apart(together, sizes)
        excluded[one].add(other)
        excluded[other].add(one)
        notes.append(_note(together, one, other, sizes, total, reserve))
    return Admission(
        conflicts={name: tuple(other for other in sizes if other in others) for name, others in excluded.items()},
        running=_first_named(sizes, excluded),
        largest=_sum(together, sizes),
        notes=tuple(notes),
    )


def _largest(names: tuple[str, ...], sizes: Mapping[str, float], excluded: Mapping[str, set[str]]) -> tuple[str, ...]:
    """The set of recipes, none of which excludes another, that takes most."""
    if not names:
        return ()
    first, *rest = names
    others = tuple(name for name in rest if name not in excluded[first])
    with_first = (first, *_largest(others, sizes, excluded))
    if len(others) == len(rest):  # it excludes none of them: no set is larger without it
        return with_first
    return max(with_first, _largest(tuple(rest), sizes, excluded), key=lambda some: _sum(some, sizes))


def _apart(together: tuple[str, ...], sizes: Mapping[str, float]) -> tuple[str, str]:
    """The two to keep apart: the two largest, as their neighbours can then stay."""
    one, other = sorted(sorted(together, key=lambda name: -sizes[name])[:2], key=together.index)
    return one, other


def _note(
    together: tuple[str, ...], one: str, other: str, sizes: Mapping[str, float], total: float, reserve: float
) -> str:
    sums = " + ".join(f"{name} {sizes[name]:.1f}" for name in together)
    return (
        f"{one} and {other} exclude each other: {sums} + operating system {reserve:.1f} = "
        f"{_sum(together, sizes) + reserve:.1f} GiB, the machine has {total:.1f} GiB"
    )


def _first_named(sizes: Mapping[str, float], excluded: Mapping[str, set[str]]) -> tuple[str, ...]:
    chosen: list[str] = []
    for name in sizes:
        if not excluded[name] & set(chosen):
            chosen.append(name)
    return tuple(chosen)


def _sum(names: tuple[str, ...], sizes: Mapping[str, float]) -> float:
    return math.fsum(sizes[name] for name in names)


def utilization(need: Need, total: float) -> float:
    """What to pass as ``--gpu-memory-utilization``: the recipe's own sum as a share of ``total``, rounded down.

    Every release of vLLM from 0.17.1 to 0.33.0 refuses to start unless free memory >= utilisation x total
    (``request_memory`` in vllm/v1/worker/utils.py), before it looks at the pinned KV bytes, and asks for 0.9 or more if
    nothing is said. With pinned KV bytes that check is all the figure is for. The engine's total is CUDA's, which on a
    Spark is a little less than MemTotal (119.7 of 121.7 GiB), so that it never asks for more than the sum.
    """
    thousandths = math.floor(min(need.serving, total - CONTEXT_MARGIN) / total * _DIGITS)
    return max(thousandths, 1) / _DIGITS  # the engine takes no zero
