"""The GPU as ``nvidia-smi`` tells it. Formats: recordings from real Sparks, kept in the lab's scenarios."""

import re
from collections.abc import Callable
from dataclasses import replace

from .shapes import Gpu, GpuState
from .source import Program, Said, one_line

#: An nvidia-smi of a healthy Spark answers in well under a second; one that takes longer is hung.
TIMEOUT = 10.0

_FIELDS = "name,driver_version,compute_cap,memory.total,temperature.gpu,utilization.gpu,clocks.sm,power.draw"
_QUERY = ("nvidia-smi", f"--query-gpu={_FIELDS}", "--format=csv,noheader,nounits")
_VERSION = ("nvidia-smi", "--version")
_APPS = ("nvidia-smi", "--query-compute-apps=pid,process_name,used_memory", "--format=csv,noheader,nounits")

#: What stands in a field that the GPU does not have: a GB10 has no memory of its own, and no power limit.
_NOTHING = ("", "[N/A]", "N/A", "[Not Supported]", "Not Supported", "[Not Found]", "[Unknown Error]")

_FAILURES: tuple[tuple[str, GpuState], ...] = (
    ("Driver/library version mismatch", "mismatch"),
    ("No devices were found", "no-devices"),
    ("couldn't communicate with the NVIDIA driver", "no-driver"),
)

_MIB = 1024**2


class Questions:
    """All that is asked of nvidia-smi, at the same time."""

    def __init__(self) -> None:
        self._query, self._version, self._apps = (Program(argv, TIMEOUT) for argv in (_QUERY, _VERSION, _APPS))

    def gpu(self) -> Gpu:
        """The GPU and its driver."""
        found = _answer(self._query.said())
        return replace(found, cuda=parse_cuda(self._version.said().text or "")) if found.state == "ok" else found

    def processes(self) -> tuple[tuple[int, str, int | None], ...] | None:
        """Process id, name and bytes of each process on the GPU; None when nvidia-smi does not say."""
        content = self._apps.said().text
        return None if content is None else parse_processes(content)


def begin() -> Callable[[], Gpu]:
    """Ask for nothing but the GPU and its driver; what is returned waits for the answer."""
    query = Program(_QUERY, TIMEOUT)
    return lambda: _answer(query.said())


def _answer(said: Said) -> Gpu:
    return parse_gpu(said) if said.state == "ended" else Gpu(said.state, detail=said.detail)


def parse_gpu(said: Said) -> Gpu:
    """Read the answer to the query, whatever it is."""
    content = said.stdout.decode("utf-8", "replace")
    line = one_line(content + " " + said.stderr.decode("utf-8", "replace"))
    for pattern, state in _FAILURES:
        if pattern in line:
            return Gpu(state, detail=line)
    rows = [[_cell(cell) for cell in row.split(",")] for row in content.splitlines() if row.strip()]
    row = rows[0] if rows else []
    if said.code != 0 or len(row) != 8 or not re.fullmatch(r"[0-9]{3,4}(\.[0-9]+)+", row[1] or ""):
        return Gpu("unreadable", detail=line or f"nvidia-smi: no output, exit status {said.code}")
    memory = _whole(row[3])
    return Gpu(
        state="ok",
        name=one_line(row[0]) if row[0] else None,
        compute_capability=row[2] if re.fullmatch(r"[0-9]+\.[0-9]+", row[2] or "") else None,
        driver=row[1],
        memory=None if memory is None else memory * _MIB,
        temperature=_whole(row[4]),
        utilization=_whole(row[5]),
        clock=_whole(row[6]),
        power=_number(row[7]),
    )


def parse_cuda(content: str) -> str | None:
    """The newest CUDA version that the driver runs, from ``nvidia-smi --version``."""
    found = re.search(r"^CUDA Version\s*:\s*([0-9]+\.[0-9]+)\s*$", content, re.MULTILINE)
    return found[1] if found else None


def parse_processes(content: str) -> tuple[tuple[int, str, int | None], ...]:
    """Rows of ``--query-compute-apps``; a name may have commas in it, so it is what the other two leave."""
    found: dict[int, tuple[int, str, int | None]] = {}
    for line in content.splitlines():
        pid, _, rest = line.partition(",")
        name, _, used = rest.rpartition(",")
        if re.fullmatch(r"\s*[0-9]{1,9}\s*", pid) and name.strip():
            memory = _whole(_cell(used))
            found[int(pid)] = (int(pid), one_line(name), None if memory is None else memory * _MIB)
    return tuple(found.values())


def _cell(cell: str) -> str | None:
    return None if cell.strip() in _NOTHING else cell.strip()


def _number(cell: str | None) -> float | None:
    return float(cell) if cell and re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,6})?", cell) else None


def _whole(cell: str | None) -> int | None:
    return int(cell) if cell and re.fullmatch(r"[0-9]{1,12}", cell) else None
