"""End the agent when nobody listens any more.

A deploy that is killed, or whose SSH connection is cut, must not leave a build running that holds the host's lock.
sshd and sudo close our standard output when the other end is gone; poll() sees that without writing a byte.
"""

import contextlib
import os
import select
import signal
import sys
import threading
from collections.abc import Callable

from .ports import descendants

#: Run once before the agent ends itself; a step sets it to undo what it has half done.
_undo: list[Callable[[], None]] = []


def watch() -> None:
    """Watch standard output from a thread of its own for the rest of this process' life."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: _end())
    threading.Thread(target=_wait_until_alone, args=(sys.stdout.fileno(),), daemon=True).start()


def on_end(undo: Callable[[], None] | None) -> None:
    """What to undo if the agent has to end from here on; None when there is nothing any more."""
    _undo[:] = [undo] if undo else []


def _wait_until_alone(handle: int) -> None:
    poll = select.poll()
    poll.register(handle, 0)  # POLLERR and POLLHUP are always reported
    while True:
        for _, event in poll.poll():
            if event & (select.POLLERR | select.POLLHUP | select.POLLNVAL):
                _end()


def _end() -> None:
    # Children first: they must not write into what the undo removes.
    for child in descendants(os.getpid()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    for undo in _undo:
        undo()
    os._exit(75)  # EX_TEMPFAIL: run again
