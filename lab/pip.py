"""pip, asked for wheels of a lab host: whatever Python, glibc or configuration this machine has."""

import re
import subprocess
import sys
import venv
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from lab.lock import Pin
from sparkfleet.errors import UserError

GLIBC = 36
"""Minor version of the oldest glibc 2.x of a lab host: bookworm's."""


@dataclass(frozen=True)
class Pip:
    """How to run pip (``command``), and for which host: minor version of CPython (``3.11``), architecture."""

    command: tuple[str, ...]
    python: str
    machine: str

    def download(self, pins: Iterable[Pin], directory: Path, *, hashed: bool = True) -> None:
        """Put the wheel of each pin, and of nothing else, into ``directory``. Raises UserError with the reason.

        Without ``hashed`` whatever file of that version the package sources have is taken.
        """
        wanted = directory / "wanted"
        directory.mkdir(parents=True, exist_ok=True)
        wanted.write_text("\n".join(str(Pin(pin.name, pin.version, "", pin.hashes)) for pin in pins) + "\n")
        self._run(directory, "--no-deps", *(["--require-hashes"] if hashed else []), "-r", str(wanted))
        wanted.unlink()

    def download_closure(self, requirements: Iterable[str], constraints: Iterable[Pin], directory: Path) -> None:
        """Put what ``requirements`` and their dependencies need into ``directory``; pins of ``constraints`` hold."""
        directory.mkdir(parents=True, exist_ok=True)
        held = directory / "held"
        held.write_text("".join(f"{pin.name}=={pin.version}\n" for pin in constraints))
        self._run(directory, "-c", str(held), *requirements)
        held.unlink()

    def _run(self, directory: Path, *arguments: str) -> None:
        fixed = ("--disable-pip-version-check", "--no-input", "--progress-bar", "off", "--only-binary", ":all:")
        order = (*self.command, "download", *fixed, *self._target(), "--dest", str(directory), *arguments)
        done = subprocess.run(order, capture_output=True, text=True)
        if done.returncode:
            raise UserError(explained(done.stdout + done.stderr))

    def _target(self) -> Iterator[str]:
        """The host's tags. Given also when they are this machine's: a newer glibc here must not choose the wheel."""
        yield from ("--python-version", self.python, "--implementation", "cp")
        old = ("manylinux2014", "manylinux2010", "manylinux1", "linux")
        for platform in (*(f"manylinux_2_{minor}" for minor in range(GLIBC, 4, -1)), *old):
            yield from ("--platform", f"{platform}_{self.machine}")


@contextmanager
def pip_for(python: str, machine: str) -> Iterator[Pip]:
    """This Python's pip; where it has none, as in a virtual environment made by uv, one in a private environment."""
    if find_spec("pip"):
        yield Pip((sys.executable, "-m", "pip"), python, machine)
        return
    with TemporaryDirectory(prefix="sparkfleet-pip-") as place:
        try:
            venv.create(place, with_pip=True)
        except subprocess.CalledProcessError:
            raise UserError(
                f"{sys.executable} has no pip and no ensurepip to make one: install pip there (on Debian and Ubuntu "
                f"the package python3-venv brings it), then retry."
            ) from None
        yield Pip((f"{place}/bin/python", "-m", "pip"), python, machine)


def explained(output: str) -> str:
    """What pip's output means, as one paragraph that quotes no address: those may hold credentials."""
    if "No space left on device" in output:
        return "The disk is full. What was fetched so far is kept: free some space and retry."
    if found := re.search(r"DO NOT MATCH THE HASHES.*?\n\s+(\S+) from ", output, re.DOTALL):
        return (
            f"{found[1]}: the file that the package index gave is not one of those in the lock (its SHA-256 differs). "
            f"It was not kept. An index that rebuilds packages does that; retry with another one."
        )
    if re.search(r"NewConnectionError|ConnectTimeout|ReadTimeout|NameResolution|ProxyError|SSLError", output):
        return (
            "pip cannot reach its package index (see `pip config list`). "
            "What was fetched so far is kept: check the network, then retry."
        )
    if found := re.search(r"No matching distribution found for (\S+)", output):
        return f"{found[1]}: pip's package sources have no wheel of it for the lab host (see `pip config list`)."
    errors = [line for line in output.splitlines() if line.startswith("ERROR:")] or output.splitlines()[-1:]
    return "pip failed: " + re.sub(r"\w+://\S+", "(address)", " ".join(errors))[:500]
