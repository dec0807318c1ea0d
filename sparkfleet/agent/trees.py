"""Directories are removed with all that is in them; how far that is, is said: a release is 8 GB in 60,000 files."""

import os
import time

from .errors import HostError
from .facts.source import names
from .progress import INTERVAL, say


def remove(tree: str, called: str = "") -> bool:
    """A directory with all that is in it, by handles: whoever owns a part of it can put a link in its place meanwhile.

    Raises HostError when that cannot be; what is gone is gone.
    """
    try:
        handle = os.open(tree, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            _empty(handle, tree, _Tally(called or tree))
        finally:
            os.close(handle)
    except FileNotFoundError:
        return True
    except OSError as error:
        raise HostError(
            f"{tree}: {error.filename or 'something in it'} cannot be removed ({error.strerror}). Mend that, then run "
            f"again: it goes on from there."
        ) from None
    return remove_empty(tree)  # where a file system of its own is mounted, that stays, empty


def _empty(handle: int, path: str, tally: "_Tally") -> None:
    device = os.fstat(handle).st_dev
    with os.scandir(handle) as entries:
        found = list(entries)
    for entry in found:
        if not entry.is_dir(follow_symlinks=False):
            size = entry.stat(follow_symlinks=False).st_size
            os.unlink(entry.name, dir_fd=handle)
            tally.add(size)
            continue
        below = os.open(entry.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=handle)
        try:
            if os.fstat(below).st_dev != device:
                raise HostError(f"{path}/{entry.name}: a file system is mounted there. Unmount it, then run again.")
            _empty(below, f"{path}/{entry.name}", tally)
        finally:
            os.close(below)
        os.rmdir(entry.name, dir_fd=handle)


class _Tally:
    """How much of a directory is gone, said every ``INTERVAL`` seconds."""

    def __init__(self, what: str) -> None:
        self.what, self.files, self.size, self.told_at = what, 0, 0, time.monotonic()

    def add(self, size: int) -> None:
        self.files, self.size = self.files + 1, self.size + size
        if time.monotonic() - self.told_at >= INTERVAL:
            say(f"removing {self.what}: {self.files} files, {self.size / 1e9:.2f} GB are gone")
            self.told_at = time.monotonic()


def remove_empty(path: str) -> bool:
    """A directory, if nothing is in it; False, and said, if it has to stay."""
    try:
        os.rmdir(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        say(f"left {path}: {', '.join(names(path)[:5]) or error.strerror}")
        return False
    return True
