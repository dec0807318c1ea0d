"""Remove releases that nothing needs any more, with all that was theirs: caches, logs, generations, rubble."""

import contextlib
import os
import shutil
from dataclasses import asdict
from pathlib import Path

from .. import receipt
from ..errors import HostError
from ..progress import say
from ..services import generations
from ..shapes import Author, GarbageOrder
from ..supply import wheels
from . import release


def apply(order: GarbageOrder, author: Author) -> None:
    """Remove what ``order`` names, and what builds that did not end have left.

    Raises HostError when something of a release is in use after all; nothing of that one is removed then.
    """
    home = Path(order.home)
    for name in order.releases:
        path = home / name
        _refuse_used(path)
        size = release.state(path).size
        _forget_served(name, author)
        _clear(path)
        shutil.rmtree(Path(order.caches) / name, ignore_errors=True)
        (Path(order.logs) / f"build-{name}.log").unlink(missing_ok=True)
        say(f"removed release {name}" + (f": {size / 1e9:.1f} GB" if size else ""))
    _remove_rubble(home)
    freed = wheels.forget(Path(order.wheels), _locks(home))
    if freed:
        say(f"removed wheels that no release is built from: {freed / 1e9:.1f} GB")
    content = receipt.read()
    needed = {pair for one in generations.served(content) for pair in one.units.items()}
    generations.forget(needed | set(generations.digests(content).items()))


def _locks(home: Path) -> dict[str, str]:
    """The lock of each release that is there, by its name."""
    there = (home / one.name for one in release.look(str(home)) if one.sealed)
    return {path.name: (path / "requirements.lock").read_text(encoding="utf-8") for path in there}


def _refuse_used(path: Path) -> None:
    if users := generations.users(receipt.read()).get(path.name):
        raise HostError(f"release {path.name}: {', '.join(users)} is started from it. Look again, then run again.")
    if pid := _process_in(path):
        raise HostError(f"release {path.name}: process {pid} runs from it. Stop that one, then run again.")


def _process_in(path: Path) -> str:
    """A process that has files of a release in its memory; empty when none has."""
    needle = os.fsencode(f" {path}/")
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if needle in (entry / "maps").read_bytes().replace(b"  ", b" "):
                return entry.name
    return ""


def _forget_served(name: str, author: Author) -> None:
    """Served sets that need the release are none to go back to from now on."""
    kept = [one for one in generations.served(receipt.read()) if name not in one.releases.values()]
    receipt.record(author, served={"sets": [asdict(one) for one in kept]})


def _clear(path: Path) -> None:
    """Out of its place first, so that a release that is half removed is never taken for one."""
    gone = path.with_name(f".{path.name}.gone")
    if path.exists():
        release.clear(gone)
        path.rename(gone)
    release.clear(gone)
    release.clear(release.beside(path))


def _remove_rubble(home: Path) -> None:
    """What was left by builds and removals that did not end; a release that waits to be sealed is none."""
    waiting = {release.beside(home / one.name).name for one in release.look(str(home)) if one.waiting}
    for entry in sorted(home.glob(".*")):
        if entry.is_dir() and entry.name not in waiting:
            release.clear(entry)
            say(f"removed {entry}: left by a run that did not end")
