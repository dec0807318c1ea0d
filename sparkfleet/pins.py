"""Locks in the requirements format, as the control machine reads and writes them.

The agent has a reader of its own (``agent/lock_file.py``): it has no package but the standard library, and refuses what
has no hash.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from packaging.markers import Marker

from sparkfleet.agent.names import normal
from sparkfleet.errors import UserError

__all__ = ("Pin", "normal", "read")


@dataclass(frozen=True)
class Pin:
    """One distribution at one version. ``hashes``: SHA-256 of each file it may be installed from, in hexadecimal."""

    name: str
    version: str
    marker: str
    hashes: tuple[str, ...]

    def holds_on(self, python: str, machine: str) -> bool:
        """Whether a Linux host with that CPython (``3.11``) and architecture (``x86_64``) needs it."""
        return not self.marker or Marker(self.marker).evaluate(_environment(python, machine))

    def __str__(self) -> str:
        start = f"{self.name}=={self.version}" + (f" ; {self.marker}" if self.marker else "")
        return " \\\n    ".join((start, *(f"--hash=sha256:{one}" for one in self.hashes)))


def read(path: Path) -> tuple[Pin, ...]:
    """Every pin of a file in the requirements format. Raises UserError naming the line that is not one."""
    whole = re.sub(r"\\\n", " ", path.read_text(encoding="utf-8"))
    return tuple(_pin(line, path) for line in whole.splitlines() if line.strip() and not line.startswith("#"))


def _pin(line: str, path: Path) -> Pin:
    found = re.fullmatch(r"([\w.-]+)==(\S+)(?:\s*;\s*(.*?))?((?:\s+--hash=sha256:[0-9a-f]{64})*)\s*", line)
    if not found:
        raise UserError(f"{path}: expected `name==version [; marker] --hash=sha256:...`, found `{line.strip()[:80]}`.")
    name, version, marker, hashes = found.groups()
    return Pin(normal(name), version, (marker or "").strip(), tuple(re.findall(r"[0-9a-f]{64}", hashes)))


def _environment(python: str, machine: str) -> dict[str, str]:
    return {
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "os_name": "posix",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": machine,
        "python_version": python,
        "python_full_version": f"{python}.0",
    }
