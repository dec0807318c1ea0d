"""pip, asked for wheels of another host: whatever Python, glibc or configuration this machine has."""

import os
import re
import subprocess
import sys
import venv
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from sparkfleet.errors import UserError


class Pinned(Protocol):
    """One distribution at one version; ``hashes`` are the SHA-256 of the files it may be, in hexadecimal."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def hashes(self) -> Collection[str]: ...


@dataclass(frozen=True)
class Pip:
    """How to run pip (``command``), and for which host.

    ``python``: minor version of CPython (``3.11``); ``machine``: architecture; ``glibc``: minor version of the newest
    glibc 2.x whose wheels may be taken. ``options`` are further ones of ``pip download``, ``environment`` is what they
    are when nobody may see them.
    """

    command: tuple[str, ...]
    python: str
    machine: str
    glibc: int
    options: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)

    def also_from(self, index: str) -> "Pip":
        """This pip asking ``index`` too: told by its environment, for an address may carry credentials."""
        known = os.environ.get("PIP_EXTRA_INDEX_URL", "")
        return replace(self, environment={"PIP_EXTRA_INDEX_URL": f"{index} {known}".strip()})

    def download(self, pins: Iterable[Pinned], directory: Path, *, hashed: bool = True) -> None:
        """Put the wheel of each pin, and of nothing else, into ``directory``. Raises UserError with the reason.

        Without ``hashed`` whatever file of that version the package sources have is taken.
        """
        wanted = directory / "wanted"
        directory.mkdir(parents=True, exist_ok=True)
        wanted.write_text("".join(_requirement(pin) for pin in pins))
        self._run(directory, "--no-deps", *(["--require-hashes"] if hashed else []), "-r", str(wanted))
        wanted.unlink()

    def download_closure(self, requirements: Iterable[str], constraints: Iterable[Pinned], directory: Path) -> None:
        """Put what ``requirements`` and their dependencies need into ``directory``; pins of ``constraints`` hold."""
        directory.mkdir(parents=True, exist_ok=True)
        held = directory / "held"
        held.write_text("".join(f"{pin.name}=={pin.version}\n" for pin in constraints))
        self._run(directory, "-c", str(held), *requirements)
        held.unlink()

    def _run(self, directory: Path, *arguments: str) -> None:
        fixed = ("--disable-pip-version-check", "--no-input", "--progress-bar", "off", "--only-binary", ":all:")
        order = (*self.command, "download", *fixed, *self.options, *self._target())
        # what it is fetching lies in the directory too: it is seen growing, and a small /tmp does not matter
        environment = {**os.environ, **self.environment, "TMPDIR": str(directory)}
        whole = (*order, "--dest", str(directory), *arguments)
        done = subprocess.run(whole, capture_output=True, text=True, env=environment)
        if done.returncode:
            raise UserError(explained(done.stdout + done.stderr))

    def _target(self) -> Iterator[str]:
        """The host's tags. Given also when they are this machine's: a newer glibc here must not choose the wheel."""
        yield from ("--python-version", self.python, "--implementation", "cp")
        old = ("manylinux2014", "manylinux2010", "manylinux1", "linux")
        for platform in (*(f"manylinux_2_{minor}" for minor in range(self.glibc, 4, -1)), *old):
            yield from ("--platform", f"{platform}_{self.machine}")


@contextmanager
def pip_for(python: str, machine: str, glibc: int, options: tuple[str, ...] = ()) -> Iterator[Pip]:
    """This Python's pip; where it has none, as in a virtual environment made by uv, one in a private environment."""
    if find_spec("pip"):
        yield Pip((sys.executable, "-m", "pip"), python, machine, glibc, options)
        return
    with TemporaryDirectory(prefix="sparkfleet-pip-") as place:
        try:
            venv.create(place, with_pip=True)
        except subprocess.CalledProcessError:
            raise UserError(
                f"{sys.executable} has no pip and no ensurepip to make one: install pip there (on Debian and Ubuntu "
                f"the package python3-venv brings it), then retry."
            ) from None
        yield Pip((f"{place}/bin/python", "-m", "pip"), python, machine, glibc, options)


def _requirement(pin: Pinned) -> str:
    return " ".join((f"{pin.name}=={pin.version}", *(f"--hash=sha256:{one}" for one in sorted(pin.hashes)))) + "\n"


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
        return f"{found[1]}: pip's package sources have no wheel of it for the host (see `pip config list`)."
    errors = [line for line in output.splitlines() if line.startswith("ERROR:")] or output.splitlines()[-1:]
    return "pip failed: " + re.sub(r"\w+://\S+", "(address)", " ".join(errors))[:500]
