"""The closure of a real engine, built by the agent's own code on whatever machine this is, for the engine's target.

Wheels come from the cache, which ``sparkfleet wheelhouse`` fills. What is for another kind of machine than this is laid
down all the same: only its own programs cannot be run. It takes root, as the agent does, and a CPython of the target's
minor version on the path (with pyenv: ``PYENV_VERSION=3.12 make test-engines``).
"""

import os
import platform
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from unittest.mock import patch

from sparkfleet import wheelhouse
from sparkfleet.agent import receipt
from sparkfleet.agent.releases import release, seal
from sparkfleet.agent.releases.lock_file import parse
from sparkfleet.agent.shapes import Author, Release
from sparkfleet.agent.wire import encode
from sparkfleet.cache import cache_dir, make_dir
from sparkfleet.catalog import engines
from sparkfleet.catalog.engines import Engine, digest, engine
from sparkfleet.patchset import for_lock
from sparkfleet.pins import Pin, read
from sparkfleet.pip import pip_for

AUTHOR = Author("test", "test")


@dataclass(frozen=True)
class Closure:
    """A sealed release. ``built`` and ``sealed`` are the seconds that these took, 0 where it was there already."""

    engine: Engine
    path: Path
    built: float
    sealed: float

    @property
    def site(self) -> Path:
        """Its site-packages."""
        return release.site_packages(self.path)


def root() -> Path:
    """Where all of this is kept."""
    return make_dir(cache_dir() / "engines")


def closure(name: str) -> Closure:
    """The engine's release: its wheels fetched, built, patched and sealed, unless it is there already."""
    wanted = engine(name)
    order = build_order(wanted, wheels(wanted))
    with own_receipt():
        began = time.perf_counter()
        release.apply(order, AUTHOR)
        built = time.perf_counter()
        seal.apply(seal_order(wanted, order), AUTHOR)
        sealed = time.perf_counter()
    new = sealed - began > 60
    return Closure(wanted, Path(order.path), built - began if new else 0.0, sealed - built if new else 0.0)


@cache
def _fetched(name: str) -> Path:
    fetched = make_dir(root() / "wheels")
    wheelhouse.make(engine(name), fetched, {}, print)
    return fetched


def wheels(wanted: Engine) -> Path:
    """A directory with the engine's wheels, and with the uv that this machine can run."""
    fetched = _fetched(wanted.name)
    chosen = root() / f"wheels-{wanted.name}"
    shutil.rmtree(chosen, ignore_errors=True)
    chosen.mkdir()
    pins = {(pin.name, pin.version) for pin in read(wanted.lock)}
    for path in fetched.glob("*.whl"):
        pin = wheelhouse.pin_of(path, hashed=False)
        if (pin.name, pin.version) in pins:
            (chosen / path.name).symlink_to(path)
    (chosen / own_uv().name).symlink_to(own_uv())
    return chosen


def own_uv() -> Path:
    """The wheel of the pinned uv for this machine."""
    directory = root() / "uv"
    if not (found := list(directory.glob("uv-*.whl"))):
        (pin,) = read(engines.ENGINES / "uv.txt")
        with pip_for("3.12", platform.machine(), 28) as pip:
            pip.download([Pin(pin.name, pin.version, "", pin.hashes)], directory)
        found = list(directory.glob("uv-*.whl"))
    return found[0]


def build_order(wanted: Engine, directory: Path) -> Release:
    """What ``sparkfleet.desired`` orders for it on a Spark, but here, and for that other machine."""
    lock = wanted.lock.read_text(encoding="utf-8")
    mark = digest(lock, encode(for_lock(wanted, lock)), wanted.target.python, wanted.overlaps)
    name = f"{wanted.name}-{mark}"
    tool = engines.uv()
    return Release(
        name=name,
        path=str(make_dir(root() / "releases") / name),
        engine=wanted.name,
        digest=mark,
        python=python(wanted.target.python),
        lock=lock,
        wheelhouse=str(directory),
        uv=tool.version,
        uv_hashes=tool.hashes,
        log=str(root() / f"build-{name}.log"),
        tools=str(root() / "tools"),
        overlaps=tuple(one.order for one in wanted.overlaps),
        platform="" if platform.machine() == wanted.target.architecture else wanted.target.platform,
    )


def only(order: Release, name: str, names: set[str], *more: Path) -> Release:
    """The order for a few of its distributions, and for the wheels ``more``."""
    pins = [pin for pin in parse(order.lock) if pin.name in names]
    lines = [f"{pin.name}=={pin.version} --hash=sha256:{min(pin.hashes)}" for pin in pins]
    for wheel in more:
        pin = wheelhouse.pin_of(wheel)
        lines.append(f"{pin.name}=={pin.version} --hash=sha256:{pin.hashes[0]}")
        place = Path(order.wheelhouse) / wheel.name
        place.unlink(missing_ok=True)
        place.symlink_to(wheel)
    path = Path(order.path).with_name(name)
    return replace(order, name=name, path=str(path), lock="\n".join(lines) + "\n")


def uv_pip(order: Release, path: Path, *arguments: str) -> None:
    """``uv pip install`` of wheels of ``order`` into a release: what somebody does by hand."""
    source = ("--offline", "--no-index", "--find-links", order.wheelhouse, "--no-deps")
    target = ("--python", str(path / "bin" / "python"))
    platform_ = ("--python-platform", order.platform) if order.platform else ()
    command = (f"{order.tools}/uv-{order.uv}/uv", "pip", "install", *source, *target, *platform_, *arguments)
    subprocess.run(command, check=True, env={**os.environ, "UV_CACHE_DIR": str(root() / "uv-cache")})
    shutil.rmtree(root() / "uv-cache", ignore_errors=True)


def seal_order(wanted: Engine, order: Release) -> seal.PatchOrder:
    """The order that patches and seals it."""
    return seal.PatchOrder(order.path, for_lock(wanted, order.lock), wanted.assertions.order)


def python(minor: str) -> str:
    """A CPython of that minor version. Raises RuntimeError when there is none on the path."""
    program = shutil.which(f"python{minor}")
    asked = (program or "python", "-I", "-c", "import sys; print(sys.executable)")
    done = subprocess.run(asked, capture_output=True, text=True)
    if not program or done.returncode:
        raise RuntimeError(f"python{minor} is not on the path (with pyenv: PYENV_VERSION={minor} make test-engines).")
    return done.stdout.strip()


def copy(closure: Closure, name: str) -> Path:
    """A copy of a release by hard links, as uv makes them: break it by replacing files, never by writing into them."""
    target = closure.path.with_name(name)
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(closure.path, target, symlinks=True, copy_function=os.link)
    return target


@contextmanager
def own_receipt() -> Iterator[None]:
    """The host's receipt is in the cache meanwhile: this machine is nobody's Spark."""
    with patch.object(receipt, "PATH", root() / "receipt.json"):
        yield
