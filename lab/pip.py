"""pip, asked for wheels of a lab host."""

from contextlib import AbstractContextManager

from sparkfleet import pip
from sparkfleet.pip import Pip, explained

__all__ = ("GLIBC", "Pip", "explained", "pip_for")

GLIBC = 36
"""Minor version of the oldest glibc 2.x of a lab host: bookworm's."""


def pip_for(python: str, machine: str) -> AbstractContextManager[Pip]:
    """pip for a lab host with that CPython (``3.11``) and architecture."""
    return pip.pip_for(python, machine, GLIBC)
