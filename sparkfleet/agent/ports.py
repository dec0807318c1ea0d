"""Whose port is it: an engine that is up is not the same as somebody else answering on its port."""

import contextlib
import os

_LISTEN = "0A"  # include/net/tcp_states.h


def is_held_by(pid: int, port: int) -> bool:
    """Whether process ``pid`` or one of its descendants listens on TCP ``port``.

    Sees the processes of its own user, which is all a unit's last start step has to.
    """
    sockets = {f"socket:[{inode}]" for inode in listening().get(port, ())}
    return any(open_files(one) & sockets for one in (pid, *descendants(pid)))


def holder(port: int) -> int | None:
    """The user whose process listens on TCP ``port``; None where nobody does."""
    return next((int(row[7]) for row in _listeners() if _port(row) == port), None)


def descendants(pid: int) -> list[int]:
    """All children of ``pid``, and theirs."""
    found: list[int] = []
    for thread in listing(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
            for child in map(int, file.read().split()):
                found += [child, *descendants(child)]
    return found


def listening() -> dict[int, set[str]]:
    """Inodes of the sockets that listen, by TCP port."""
    found: dict[int, set[str]] = {}
    for row in _listeners():
        found.setdefault(_port(row), set()).add(row[9])
    return found


def _port(row: list[str]) -> int:
    return int(row[1].rsplit(":", 1)[1], 16)


def _listeners() -> list[list[str]]:
    """The rows of the kernel's tables of TCP sockets that listen: a table is long on a busy host, and slow to read."""
    found = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError), open(table, encoding="ascii") as file:
            rows = [line.split() for line in file.readlines()[1:]]
            found += [row for row in rows if row[3] == _LISTEN]
    return found


def open_files(pid: int) -> set[str]:
    links = set()
    for handle in listing(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            links.add(os.readlink(f"/proc/{pid}/fd/{handle}"))
    return links


def listing(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []  # the process has ended meanwhile, or is not ours to see
