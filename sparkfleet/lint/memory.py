"""Memory that CPU and GPU share: too much of it freezes the machine until someone presses the power button."""

from collections.abc import Iterator

from sparkfleet.catalog.architectures import of_repository
from sparkfleet.lint.case import Case
from sparkfleet.lint.findings import Trouble
from sparkfleet.lint.registry import rule

#: MemTotal of most Sparks, in GiB (127,600,812 kB).
TOTAL = 121.7

#: The largest part of it that people report to be safe for one engine.
LARGEST_FRACTION = 0.85

GIB = 1024**3


@rule("memory-fraction", "error")
def memory_fraction(case: Case) -> Iterator[Trouble]:
    """Weights, KV cache and overhead that come to more than 0.85 of a Spark's memory.

    Why: the engine's share is derived from their sum. At 0.90 and 0.92, vLLM's own defaults, page cache or a second
    process is enough to freeze the whole machine; others run 0.7 to 0.8, one froze at 0.85 with a wrong KV budget.

    Source: MemTotal of 121.7 GiB as Sparks report it; recipes of others (sparkrun, eugr) and the write-up's row S10.
    """
    memory = case.recipe.memory
    asked = memory.weights + memory.kv + memory.overhead
    if case.engine.gpu and asked > LARGEST_FRACTION * TOTAL:
        sums = f"weights {memory.weights:g} + KV {memory.kv:.1f} + overhead {memory.overhead:g} = {asked:.1f} GiB"
        what = f"{sums}, {asked / TOTAL:.2f} of the {TOTAL} GiB of a Spark."
        yield Trouble(
            ("memory",), what, f"bring it to {LARGEST_FRACTION * TOTAL:.1f} GiB: less KV, or smaller weights."
        )


@rule("kv-not-pinned", "error")
def kv_not_pinned(case: Case) -> Iterator[Trouble]:
    """No size for the KV cache.

    Why: the engine then measures what is free and takes the rest. On unified memory that profiler is off: it reported
    `Estimated CUDA graph memory: -35.63 GiB`, gave 112 GB to the KV cache, and the machine froze.

    Source: the write-up's row S10.
    """
    if case.engine.gpu and case.recipe.memory.kv_bytes == 0:
        yield Trouble(("memory", "kv_bytes"), "memory.kv_bytes is 0.", "write what `context` takes, and for how many.")


@rule("context-beyond-kv", "error")
def context_beyond_kv(case: Case) -> Iterator[Trouble]:
    """A context of which not one conversation fits into the KV cache.

    Why: the engine refuses to start, after it has loaded the weights for minutes.

    Source: the figures of `catalog/architectures/`, through kvfit; what that does not know is not judged.
    """
    recipe, flags = case.recipe, case.serving.flags
    architecture = of_repository(recipe.model.repository)
    if architecture is None or not recipe.memory.kv_bytes:
        return
    from sparkfleet.memory.kv import kv_need  # kvfit takes longer to import than the rest of a plan

    need = kv_need(architecture, recipe.context, str(flags.get("kv-cache-dtype", "auto")), str(flags.get("dtype", "")))
    if need.bytes is not None and need.bytes > recipe.memory.kv_bytes:
        what = (
            f"{recipe.context} tokens take {need.bytes / GIB:.2f} GiB of KV cache; "
            f"memory.kv_bytes gives {recipe.memory.kv:.2f} GiB."
        )
        yield Trouble(("context",), what, f"write kv_bytes: {need.bytes} or more, or a smaller context.")
