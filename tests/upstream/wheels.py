"""Real wheels, fetched once: the Python sources and records of a release, laid out as site-packages has them.

A wheel is downloaded with pip, unpacked into the cache without its compiled files, and deleted: vLLM's
are over 400 MB each and only their ``.py`` files, equal on all architectures, matter here. A directory
appears in the cache under its final name only when it is whole, so an interrupted run is simply resumed.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Iterable
from pathlib import Path

#: what the target releases run on; the wheels' .py files do not depend on it
PYTHON = "3.12"
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_31_x86_64", "manylinux_2_35_x86_64", "manylinux_2_24_x86_64")


def cache() -> Path:
    """Directory for downloads: ``$SPARKFLEET_CACHE``, else the user's cache, and ``upstream`` in it."""
    own = os.environ.get("SPARKFLEET_CACHE")
    user = os.environ.get("XDG_CACHE_HOME")
    root = Path(own) if own else (Path(user) if user else Path.home() / ".cache") / "sparkfleet"
    directory = root / "upstream"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def pip_python() -> str:
    """A Python that has pip: this one, or one in a virtual environment of the cache."""
    if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True).returncode == 0:
        return sys.executable
    return str(make_venv("pip") / "bin" / "python")


def make_venv(name: str) -> Path:
    """The virtual environment ``name`` of the cache, made empty (with pip) when it is not there."""
    directory = cache() / "venvs" / name
    if not (directory / "made").exists():
        shutil.rmtree(directory, ignore_errors=True)
        venv.create(directory, with_pip=True, symlinks=True)
        (directory / "made").touch()
    return directory


def wheel(distribution: str, version: str, into: Path, python: str = PYTHON) -> Path:
    """Download one wheel, without dependencies, into a directory."""
    platforms = [argument for name in PLATFORMS for argument in ("--platform", name)]
    command = [pip_python(), "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir"]
    command += ["--only-binary", ":all:", "--python-version", python, *platforms]
    command += ["--dest", str(into), f"{distribution}=={version}"]
    subprocess.run(command, check=True)
    stem = distribution.replace("-", "_")
    (found,) = into.glob(f"{stem}-{version}-*.whl")
    return found


def sources(distribution: str, version: str) -> Path:
    """The ``.py`` files and the ``.dist-info`` of a release: a directory in the cache, to copy and not to edit."""
    final = cache() / f"{distribution}-{version}"
    if final.exists():
        return final
    with tempfile.TemporaryDirectory(dir=cache()) as scratch:
        archive = wheel(distribution, version, Path(scratch))
        unpacked = Path(scratch) / "unpacked"
        with zipfile.ZipFile(archive) as members:
            wanted = [m for m in members.namelist() if m.endswith(".py") or ".dist-info/" in m]
            members.extractall(unpacked, wanted)
        unpacked.rename(final)
    return final


def lay(site: Path, releases: Iterable[tuple[str, str]]) -> Path:
    """Lay releases down into ``site``, later ones over earlier ones, as installing them in turn would."""
    site.mkdir(parents=True, exist_ok=True)
    for distribution, version in releases:
        copy(sources(distribution, version), site)
    return site


def lay_files(site: Path, distribution: str, version: str, paths: Iterable[str]) -> Path:
    """Lay only these files of a release down, where it has them, and its records: enough for a patch, and quick."""
    source = sources(distribution, version)
    for info in source.glob("*.dist-info"):
        copy(info, site / info.name)
    for path in paths:
        if (source / path).exists():
            (site / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source / path, site / path)
    return site


def copy(source: Path, target: Path) -> Path:
    """A copy of a cached tree for a test, hard-linked like uv's: what writes in place would spoil the cache."""

    def link(one: str, other: str) -> None:
        try:
            os.link(one, other)
        except OSError:  # another file system
            shutil.copy2(one, other)

    shutil.copytree(source, target, symlinks=True, copy_function=link, dirs_exist_ok=True)
    return target


def cutlass(version: str) -> Path:
    """A virtual environment of the cache with CUTLASS DSL really installed: libs-base, then libs-cu13 over it."""
    directory = make_venv(f"cutlass-{version}")
    if not (directory / "installed").exists():
        names = ("nvidia-cutlass-dsl", "nvidia-cutlass-dsl-libs-base")
        pip(directory, "install", *(f"{name}=={version}" for name in names))
        pip(directory, "install", "--no-deps", f"nvidia-cutlass-dsl-libs-cu13=={version}")
        (directory / "installed").touch()
    return directory


def pip(environment: Path, *arguments: str) -> None:
    """Run the pip of a virtual environment; downloaded wheels are kept in pip's own cache."""
    subprocess.run([environment / "bin" / "python", "-m", "pip", "--quiet", *arguments], check=True)


def site_packages(environment: Path) -> Path:
    """The site-packages directory of a virtual environment."""
    (site,) = (environment / "lib").glob("python3.*/site-packages")
    return site
