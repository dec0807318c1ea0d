"""Who else is at work: on the GPU, on the ports that units want, with the package database, as a guard of memory."""

import contextlib
import fcntl
import os
import re
import struct
from collections.abc import Iterable

from ..ports import listening, open_files
from .shapes import GpuProcess, PortOwner, Processes
from .source import names, text

_LOCK = "/var/lib/dpkg/lock-frontend"

#: Programs that end others when memory runs out, by the name the kernel gives their process (15 characters).
_GUARDS = ("earlyoom", "systemd-oomd", "nohang", "oomd")

#: Other ways to serve models, told in the same way.
_SERVERS = ("raylet", "ollama", "llama-server", "tritonserver", "lmstudio")

_FLOCK = "hhqqi4x"  # struct flock of 64-bit Linux: fcntl(2)


def look(ports: Iterable[int], gpu: Iterable[tuple[int, str, int | None]] | None) -> Processes:
    """``ports``: whose owners to look for; ``gpu``: what nvidia-smi says of processes."""
    commands = {int(pid): text(f"/proc/{pid}/comm") or "" for pid in names("/proc") if pid.isdigit()}
    holder = lock_holder(_LOCK)
    return Processes(
        guards=tuple(sorted({one for one in commands.values() if one in _GUARDS})),
        servers=tuple(sorted({one for one in commands.values() if one in _SERVERS})),
        dpkg=None if holder is None else commands.get(holder) or f"process {holder}",
        ports=_owners(dict.fromkeys(ports), commands),
        gpu=None if gpu is None else tuple(GpuProcess(pid, name, memory, _unit(pid)) for pid, name, memory in gpu),
    )


def lock_holder(path: str) -> int | None:
    """The process that holds a lock on the whole of ``path``, None if nobody does. Takes no lock itself."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, asked))
    except OSError:
        return None
    finally:
        os.close(file)
    return None if kind == fcntl.F_UNLCK else int(pid)


def _owners(ports: Iterable[int], commands: dict[int, str]) -> tuple[PortOwner, ...]:
    """Who listens on which of ``ports``: in one pass, for a host has many processes with many open files."""
    table = listening()
    taken = {port: {f"socket:[{inode}]" for inode in table[port]} for port in ports if port in table}
    owners = {port: PortOwner(port, None, None, None) for port in taken}
    for pid, name in commands.items() if taken else ():
        files = open_files(pid)
        for port, sockets in taken.items():
            if owners[port].pid is None and files & sockets:
                owners[port] = PortOwner(port, pid, name, _unit(pid))
    return tuple(owners.values())


def _unit(pid: int) -> str | None:
    content = None
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="replace") as file:
        content = file.read(65536)
    return parse_unit(content or "")


def parse_unit(content: str) -> str | None:
    """The systemd unit in /proc/PID/cgroup: the innermost service or scope of the line that systemd keeps."""
    for hierarchy in (r"0::", r"[0-9]+:name=systemd:"):
        for line in re.findall(rf"^{hierarchy}(/.*)$", content, re.MULTILINE):
            units = [part for part in line.split("/") if part.endswith((".service", ".scope"))]
            if units:
                return str(units[-1])
    return None
