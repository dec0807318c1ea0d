"""Many files of a release are read side by side, and how far that is, is said: it is a minute or two for 10 GB."""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ..progress import say

#: Seconds between two lines of progress.
TICK = 5.0

Item = TypeVar("Item")
Found = TypeVar("Found")


def each(title: str, items: Iterable[Item], read: Callable[[Item], tuple[int, Found]]) -> Iterator[Found]:
    """What ``read`` finds in each of ``items``, in their order; it also gives the bytes that it read."""
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        done, told = 0, time.monotonic()
        for size, found in pool.map(read, items):
            done += size
            if time.monotonic() - told > TICK:
                told = time.monotonic()
                say(f"{title}: {done / 1e9:.1f} GB read")
            yield found
