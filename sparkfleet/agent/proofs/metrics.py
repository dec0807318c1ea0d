"""What an engine is doing, out of the Prometheus text that it gives away.

The names are vLLM's (``vllm/v1/metrics/loggers.py``): ``vllm:kv_cache_usage_perc``, until 0.10
``vllm:gpu_cache_usage_perc``, is a share, whatever it is called. Each engine core of a server has a sample of its own.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

#: ``name{label="value",...} number [timestamp]``: a quoted value may hold anything, a quote after a backslash.
_SAMPLE = re.compile(
    r'(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)(?:\{(?:[^"{}]|"(?:[^"\\]|\\.)*")*\})?[ \t]+(?P<number>\S+)(?:[ \t]+-?\d+)?\s*'
)

RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
KV_USE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")


@dataclass(frozen=True)
class Load:
    """Requests that run and that wait, and the share of the KV cache in use (0 to 1); None: the engine does not say."""

    running: int | None = None
    waiting: int | None = None
    kv_use: float | None = None


def load(text: str) -> Load:
    """The load that the Prometheus text ``text`` tells of: requests of all engine cores, KV use of the fullest."""
    found: dict[str, list[float]] = {}
    for name, number in _samples(text):
        found.setdefault(name, []).append(number)
    kv_use = next((found[name] for name in KV_USE if name in found), [])
    share = max(kv_use, default=-1.0)
    return Load(_count(found.get(RUNNING)), _count(found.get(WAITING)), share if 0 <= share <= 1 else None)


def _count(numbers: list[float] | None) -> int | None:
    return round(sum(numbers)) if numbers and min(numbers) >= 0 else None


def _samples(text: str) -> Iterator[tuple[str, float]]:
    """Every sample that has a finite number; comments and what is no sample are passed over."""
    for line in text.split("\n"):
        if found := _SAMPLE.fullmatch(line):
            try:
                number = float(found["number"])
            except ValueError:
                continue
            if math.isfinite(number) and abs(number) < 1e15:
                yield found["name"], number
