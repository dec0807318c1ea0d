"""One change at a time on a directory, and no look at it meanwhile, by a lock that leaves no file behind."""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from ..errors import HostError

#: Seconds to wait for another run: a change takes well under one, its probes a few.
PATIENCE = 60.0


@contextlib.contextmanager
def held(site: Path, *, shared: bool) -> Iterator[None]:
    """Hold ``site`` (the directory itself is locked); ``shared`` keeps writers out only.

    Raises HostError when another run keeps it for longer than ``PATIENCE``, or it is not a directory.
    """
    try:
        handle = os.open(site, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise HostError(f"{site}: expected a site-packages directory: {error.strerror or error}.") from None
    try:
        _wait(handle, site, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _wait(handle: int, site: Path, kind: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(handle, kind | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise HostError(
                    f"{site}: another run has been changing its patches for more than {PATIENCE:.0f} s. Wait until it "
                    f"has ended, then run again."
                ) from None
            time.sleep(0.05)
        except OSError as error:
            raise HostError(f"{site}: cannot be locked: {error.strerror or error}.") from None
