"""uv, asked which wheels an engine's pins come to on its target."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote

import tomllib
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import BuildTag, InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from sparkfleet.agent.names import normal
from sparkfleet.catalog.engines import Engine, Target
from sparkfleet.errors import UserError

_LOCK = "pylock.toml"


@dataclass(frozen=True)
class Wheel:
    """One wheel of a closure. ``size`` in bytes, 0 where the index does not say; ``sha256`` in hexadecimal."""

    name: str
    version: str
    file: str
    size: int
    sha256: str

    @property
    def hashes(self) -> tuple[str, ...]:
        """The one hash, as other pins have several."""
        return (self.sha256,)


def find_uv() -> str:
    """Path of uv, on PATH or beside this Python. Raises UserError."""
    beside = Path(sys.executable).with_name("uv")
    found = shutil.which("uv") or (str(beside) if beside.is_file() else None)
    if not found:
        raise UserError("Making a lock takes uv, which is not on PATH: `pip install uv` brings it.")
    return found


def resolve(
    engine: Engine, sources: Mapping[str, str], known: Mapping[str, str], upgrade: Iterable[str]
) -> tuple[Wheel, ...]:
    """The closure of an engine's pins on its target, one wheel a distribution, sorted by name.

    ``known``: versions to keep where the pins allow it, but not of ``upgrade``. ``sources``: what the user gave, the
    address of an index or the path of a wheel by distribution. Raises UserError with uv's reason when there is no
    such closure.
    """
    with TemporaryDirectory(prefix="sparkfleet-lock-") as place:
        here = Path(place)
        (here / "pyproject.toml").write_text(_project(engine, sources, here), encoding="utf-8")
        # uv prefers the versions of the file that it is to write
        if known:
            (here / _LOCK).write_text(_preferences(known), encoding="utf-8")
        target = engine.target
        order = [find_uv(), "pip", "compile", "pyproject.toml", "--output-file", _LOCK, "--format", _LOCK]
        order += ["--only-binary", ":all:", "--python-platform", target.platform, "--python-version", target.python]
        order += ["--no-header", "--no-annotate", "--quiet", "--find-links", str(here)]
        for name in upgrade:
            order += ["--upgrade-package", name]
        done = subprocess.run(order, cwd=here, capture_output=True, text=True, env=_environment())
        if done.returncode:
            raise UserError(f"engine {engine.name}: uv finds no closure of its pins: {_plain(done.stderr)}")
        packages = tomllib.loads((here / _LOCK).read_text(encoding="utf-8"))["packages"]
    rank = ranks(target)
    found = [_wheel(one, rank, engine) for one in packages]
    own = {one.distribution: sources[one.distribution] for one in engine.sources if one.kind == "wheel"}
    found = [replace(one, size=Path(own[one.name]).stat().st_size) if one.name in own else one for one in found]
    return tuple(sorted(found, key=lambda one: one.name))


def _environment() -> dict[str, str]:
    # an environment that happens to be active must not have a say
    return {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "UV_PYTHON")}


def _project(engine: Engine, sources: Mapping[str, str], wheels: Path) -> str:
    versions = dict(engine.pins)
    indexes, held = [], []
    for source in engine.sources:
        name, given = source.distribution, sources[source.distribution]
        if source.kind == "index":
            indexes.append(f'[[tool.uv.index]]\nname = "{name}"\nurl = {_quoted(given)}\nexplicit = true\n')
            held.append(f'{name} = {{ index = "{name}" }}\n')
        else:
            wheel = Path(given).absolute()
            versions[name] = given_version(name, engine.pins[name], wheel)
            (wheels / wheel.name).symlink_to(wheel)
    lines = "".join(f'  "{name}=={version}",\n' for name, version in versions.items())
    project = f'[project]\nname = "engine"\nversion = "0"\nrequires-python = ">={engine.target.python}"\n'
    return f"{project}dependencies = [\n{lines}]\n" + "".join(indexes) + "[tool.uv.sources]\n" + "".join(held)


def given_version(name: str, wanted: str, wheel: Path) -> str:
    """Version of a wheel that the user gives: the pin, or the pin with a local part that the pin does not have.

    Raises UserError when it is not there, not of that distribution or not of that version.
    """
    if not wheel.is_file():
        raise UserError(f"{wheel}: expected the wheel of {name} {wanted}; there is no such file.")
    try:
        found, version, _, _ = parse_wheel_filename(wheel.name)
    except (InvalidWheelFilename, ValueError):
        raise UserError(f"{wheel}: expected the wheel of {name} {wanted}, by its file name; this is none.") from None
    if found != name or (str(version) != wanted and (Version(wanted).local or version.public != wanted)):
        raise UserError(f"{wheel}: expected the wheel of {name} {wanted}; by its file name it is {found} {version}.")
    return str(version)


def _quoted(text: str) -> str:
    if not re.fullmatch(r"[!-~]+", text) or '"' in text or "\\" in text:
        raise UserError(f"{text!r}: expected the address of an index, without spaces and quotes.")
    return f'"{text}"'


def _preferences(known: Mapping[str, str]) -> str:
    packages = (
        f'[[packages]]\nname = "{name}"\nversion = "{version}"\nwheels = []\n' for name, version in known.items()
    )
    return 'lock-version = "1.0"\ncreated-by = "sparkfleet"\n' + "".join(packages)


def ranks(target: Target) -> dict[Tag, int]:
    """How well each tag fits a host of the target, 0 best: pip's order."""
    major, minor = (int(part) for part in target.python.split("."))
    newest = int(target.glibc.split(".")[1])
    platforms = [f"manylinux_2_{one}_{target.architecture}" for one in range(newest, 16, -1)]
    platforms += [f"manylinux2014_{target.architecture}", f"linux_{target.architecture}"]
    tags = [*cpython_tags((major, minor), platforms=platforms)]
    tags += compatible_tags((major, minor), f"cp{major}{minor}", platforms)
    return {tag: place for place, tag in reversed(list(enumerate(tags)))}


def _wheel(package: Mapping[str, Any], rank: Mapping[Tag, int], engine: Engine) -> Wheel:
    name, version = normal(package["name"]), package["version"]
    fits: list[tuple[int, tuple[int, str], str, Mapping[str, Any]]] = []
    for one in package.get("wheels", []):
        file = unquote(one.get("name") or str(one.get("url") or one.get("path")).split("#")[0].rsplit("/", 1)[-1])
        _, _, build, tags = parse_wheel_filename(file)
        best = min((rank[tag] for tag in tags if tag in rank), default=None)
        if best is not None:
            fits.append((best, _negated(build), file, one))
    if not fits:
        raise UserError(
            f"{name} {version}: its index has no wheel for {engine.target.platform}, CPython {engine.target.python}."
        )
    _, _, file, best_one = min(fits, key=lambda fit: fit[:3])
    sha256 = best_one.get("hashes", {}).get("sha256")
    if not sha256:
        raise UserError(f"{file}: its index gives no SHA-256 for it, so it cannot be locked. Give the wheel itself.")
    return Wheel(name, version, file, int(best_one.get("size", 0)), sha256)


def _negated(build: BuildTag) -> tuple[int, str]:
    """Sorts the highest build of a version first, a wheel without a build tag last."""
    return (-build[0], build[1]) if build else (1, "")


def _plain(output: str) -> str:
    """uv's words as one paragraph without addresses: those may hold credentials."""
    return " ".join(re.sub(r"\w+://\S+", "(address)", output).split())[:800]
