"""How much KV cache one conversation takes, through kvfit.

kvfit knows the architectures whose cache is not simply layers x tokens: alternating sliding windows (gpt-oss, Gemma 4),
gated delta nets (Qwen3.5, 3.6), Mamba hybrids (Nemotron 3). It refuses those that it does not know, and so do we.
"""

from dataclasses import dataclass

from kvfit import UnsupportedArchitecture, estimate_cache  # type: ignore[import-untyped]

from sparkfleet.catalog.architectures import Architecture

GIB = 1024**3

#: Bytes of an element, by what ``--kv-cache-dtype`` or ``--dtype`` say.
_WIDTHS = {"float32": 4, "bfloat16": 2, "float16": 2, "half": 2}


@dataclass(frozen=True)
class KvNeed:
    """What one conversation takes. ``bytes`` is None where that is not known, and ``reason`` says why."""

    bytes: int | None
    reason: str = ""

    @property
    def gib(self) -> float | None:
        """The same in GiB."""
        return None if self.bytes is None else self.bytes / GIB

    def __str__(self) -> str:
        return f"unknown: {self.reason}" if self.gib is None else f"{self.gib:.2f} GiB"


def kv_need(architecture: Architecture | None, context: int, kv_cache_dtype: str = "auto", dtype: str = "") -> KvNeed:
    """The KV cache, and recurrent state, of one conversation of ``context`` tokens.

    ``kv_cache_dtype`` and ``dtype`` are what the engine is given; ``auto`` follows the model, which is 16 bits wide.
    """
    if architecture is None:
        return KvNeed(None, "its architecture is not in catalog/architectures/")
    width = element_width(kv_cache_dtype, dtype)
    if width is None:
        return KvNeed(None, f"the width of --kv-cache-dtype {kv_cache_dtype} is not known")
    try:
        found = estimate_cache(architecture.as_config(), context_tokens=context, kv_bytes=width)
    except (UnsupportedArchitecture, ValueError) as error:
        return KvNeed(None, str(error))
    return KvNeed(round(found.total_bytes))


def element_width(kv_cache_dtype: str, dtype: str = "") -> int | None:
    """Bytes of an element of the cache; None for a type that this does not know (packed ones, for instance)."""
    if kv_cache_dtype == "auto":
        return _WIDTHS.get(dtype or "auto", 2)
    if kv_cache_dtype in ("fp8", "fp8_e4m3", "fp8_e5m2"):
        return 1
    return _WIDTHS.get(kv_cache_dtype)
