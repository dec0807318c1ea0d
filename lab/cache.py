"""The cache, as the rest of the lab knows it."""

from sparkfleet.cache import cache_dir, caller, make_dir

__all__ = ("cache_dir", "caller", "make_dir")
