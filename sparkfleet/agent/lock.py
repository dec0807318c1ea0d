"""One change at a time on a host, by a lock that dies with its holder."""

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

from .errors import HostError
from .progress import say
from .shapes import Author

PATH = Path("/run/sparkfleet.lock")  # /run: gone after a power cut; flock: gone when the holder is

#: Seconds to wait for another deploy, or for what is left of one whose connection was cut: a build may take minutes.
PATIENCE = 900.0


@contextlib.contextmanager
def held(author: Author, what: str) -> Iterator[None]:
    """Hold the host's lock while ``what`` is done.

    Raises HostError naming the holder when another run keeps it for longer than ``PATIENCE``.
    """
    handle = _open()
    try:
        _wait_for(handle)
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps({"user": author.user, "what": what, "pid": os.getpid()}).encode(), 0)
        yield
    finally:
        with contextlib.suppress(OSError):
            os.ftruncate(handle, 0)
        os.close(handle)


def _open() -> int:
    """The lock file, for root alone: whoever could open it could hold it."""
    try:
        handle = os.open(PATH, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        os.fchmod(handle, 0o600)
    except OSError as error:
        raise HostError(f"{PATH}: the lock cannot be opened ({error.strerror}). Remove what is there.") from None
    return handle


def _wait_for(handle: int) -> None:
    deadline = time.monotonic() + PATIENCE
    told = False
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise HostError(
                    f"another sparkfleet run is changing this host ({_holder(handle)}) and has kept its lock for more "
                    f"than {PATIENCE:.0f} s. Wait until it has ended, then run again."
                ) from None
            if not told:
                say(f"waiting for another sparkfleet run ({_holder(handle)})")
                told = True
            time.sleep(0.2)


def _holder(handle: int) -> str:
    try:
        holder = json.loads(os.pread(handle, 4096, 0))
        return f"{holder['what']}, by {holder['user']}, process {holder['pid']}"
    except (ValueError, KeyError, TypeError):
        return "it does not say which"
