"""A crash, an error or an interrupt at every write, rename and unlink: all old or all new, and nothing lost."""

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from sparkfleet.agent.errors import HostError
from sparkfleet.agent.patching import PatchSet, apply, revert, status
from sparkfleet.agent.patching.store import DIRECTORY, settle

from .sites import ALL, ARCH, KERNEL, LAYERS, SLOW, engine, patch, patch_set, target, tree

#: Every call by which the code changes a file system or relies on it having been changed.
CALLS = ("open", "write", "replace", "unlink", "mkdir", "rmdir", "chmod", "fchmod", "fchown", "fsync")
_REAL = {name: getattr(os, name) for name in CALLS}
_REAL["fsync"] = lambda handle: None  # counted and hit like the others; the disk itself is not what is tried here

SMALL = patch_set(ARCH, *(patch(one.id, *one.targets, wanted=False) for one in (SLOW, LAYERS)))
NEWER = patch_set(patch("P1", target(KERNEL, ("    if cap == 120:\n", "    if cap // 10 == 12:\n"))), SLOW, LAYERS)

#: name -> what is there before, and the change that is hit
SCENARIOS: dict[str, tuple[Callable[[Path], object], Callable[[Path], object], PatchSet]] = {
    "first apply": (lambda site: None, lambda site: apply(site, ALL), ALL),
    "larger set": (lambda site: apply(site, SMALL), lambda site: apply(site, ALL), ALL),
    "smaller set": (lambda site: apply(site, ALL), lambda site: apply(site, SMALL), SMALL),
    "newer form": (lambda site: apply(site, ALL), lambda site: apply(site, NEWER), NEWER),
    "revert": (lambda site: apply(site, ALL), lambda site: revert(site, ALL), ALL),
}


@contextmanager
def hit(number: int, how: Callable[[str, tuple[Any, ...]], object], once: bool = False) -> Iterator[list[str]]:
    """From the ``number``-th call on (or only there), do ``how`` instead; yields the calls that were made."""
    made: list[str] = []

    def wrap(name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if name == "open" and not args[1] & (os.O_WRONLY | os.O_RDWR):
                return _REAL[name](*args, **kwargs)
            made.append(name)
            if len(made) == number or (len(made) > number and not once):
                how(name, args)
            return _REAL[name](*args, **kwargs)

        return call

    try:
        for name in CALLS:
            setattr(os, name, wrap(name))
        yield made
    finally:
        for name in CALLS:
            setattr(os, name, _REAL[name])


def power_cut(name: str, args: tuple[Any, ...]) -> None:
    """The process is gone at once, a write half done: no handler and no ``finally`` runs."""
    if name == "write":
        _REAL["write"](args[0], bytes(args[1])[: len(args[1]) // 2])
    os._exit(77)


def crash_at(number: int, change: Callable[[Path], object], site: Path) -> bool:
    """Run ``change`` in a process that dies at its ``number``-th call; False when it ended before."""
    child = os.fork()
    if child == 0:
        with hit(number, power_cut):
            change(site)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 77), f"the change failed with {code} when it was hit at call {number}"
    return code == 77


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """In memory where there is such a place: hundreds of small trees are made here."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as directory:
        yield Path(directory).resolve()


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", _REAL["fsync"])


def prepared(tmp_path: Path, scenario: str) -> tuple[Path, dict[str, Any], dict[str, Any]]:
    """A directory before the change, and what it is before and after it."""
    before, change, _ = SCENARIOS[scenario]
    site = engine(tmp_path / "start")
    before(site)
    shutil.copytree(site, tmp_path / "end", symlinks=True)
    change(tmp_path / "end")
    return site, tree(site), tree(tmp_path / "end")


def shipped(found: dict[str, Any]) -> dict[str, Any]:
    """A tree without what sparkfleet keeps there."""
    return {path: entry for path, entry in found.items() if not path.startswith(DIRECTORY)}


def without_names(found: dict[str, Any]) -> dict[str, Any]:
    """A tree without the random name of the change."""
    return {path: entry for path, entry in found.items() if not path.endswith("state.json")}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_crash_at_every_call(tmp_path: Path, scenario: str) -> None:
    start, old, new = prepared(tmp_path, scenario)
    _, change, patches = SCENARIOS[scenario]
    settled = []
    number = 0
    while True:
        number += 1
        site = tmp_path / f"{number}"
        shutil.copytree(start, site, symlinks=True)
        if not crash_at(number, change, site):
            break
        report = status(site, patches)  # what is there can always be said
        for row in report.rows:
            assert row.state in ("pristine", "applied"), (number, row)
        settle(site)
        after = tree(site)
        assert without_names(after) in (without_names(old), without_names(new)), f"neither old nor new at {number}"
        settled.append(shipped(after) == shipped(new))
        change(site)
        assert without_names(tree(site)) == without_names(new), f"the next run did not get there at {number}"
        revert(site, patches)
        assert DIRECTORY not in tree(site), number
        shutil.rmtree(site)
    assert number > 15 and True in settled and False in settled  # both outcomes were seen
    assert settled == sorted(settled)  # one instant decides


@pytest.mark.parametrize("scenario", ["first apply", "newer form", "revert"])
def test_crash_while_settling_a_crash(tmp_path: Path, scenario: str) -> None:
    start, old, new = prepared(tmp_path, scenario)
    _, change, patches = SCENARIOS[scenario]
    tried = 0
    number = 3
    while True:
        site = tmp_path / f"{number}"
        shutil.copytree(start, site, symlinks=True)
        if not crash_at(number, change, site):
            break
        second = 1
        while crash_at(second, settle, site):
            second += 2  # each crash leaves less to do, so this ends
            tried += 1
        assert without_names(tree(site)) in (without_names(old), without_names(new)), number
        change(site)
        assert status(site, patches).converged == (scenario != "revert")
        number += 3
        shutil.rmtree(site)
    assert tried > 10


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_error_at_every_call(tmp_path: Path, scenario: str) -> None:
    """One call fails, those after it work: the run says so and the directory is as it was, or wholly changed."""

    def fail(name: str, args: tuple[Any, ...]) -> None:
        raise OSError(code, os.strerror(code))

    codes = (errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES)
    start, old, new = prepared(tmp_path, scenario)
    _, change, _ = SCENARIOS[scenario]
    number = 0
    said = set()
    while True:
        number += 1
        code = codes[number % len(codes)]
        site = tmp_path / f"{number}"
        shutil.copytree(start, site, symlinks=True)
        with hit(number, fail, once=True) as made:
            try:
                change(site)
                raised = ""
            except HostError as error:
                raised = str(error)
                assert os.strerror(code) in raised
        if number > len(made):
            break
        after = without_names(tree(site))
        if "Nothing was changed" in raised:
            assert after == without_names(old), number
            said.add("old")
        else:
            settle(site)
            assert without_names(tree(site)) == without_names(new) or shipped(tree(site)) == shipped(old), number
            said.add("else")
        change(site)
        assert without_names(tree(site)) == without_names(new), number
        shutil.rmtree(site)
    assert "old" in said


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_everything_fails_from_a_call_on(tmp_path: Path, scenario: str) -> None:
    """A disk that goes read-only in the middle: a plain error, and the next run puts it right."""

    def fail(name: str, args: tuple[Any, ...]) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    start, old, new = prepared(tmp_path, scenario)
    _, change, _ = SCENARIOS[scenario]
    number = 0
    while True:
        number += 1
        site = tmp_path / f"{number}"
        shutil.copytree(start, site, symlinks=True)
        with hit(number, fail) as made:
            try:
                change(site)
            except HostError as error:
                assert "Read-only file system" in str(error)
        if number > len(made):
            break
        settle(site)
        assert without_names(tree(site)) in (without_names(old), without_names(new)), number
        change(site)
        assert without_names(tree(site)) == without_names(new), number
        shutil.rmtree(site)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_interrupt_at_every_call(tmp_path: Path, scenario: str) -> None:
    """Ctrl-C: the run goes back (or, for a revert, on) before it ends."""

    def interrupt(name: str, args: tuple[Any, ...]) -> None:
        raise KeyboardInterrupt

    start, old, new = prepared(tmp_path, scenario)
    _, change, _ = SCENARIOS[scenario]
    number = 0
    while True:
        number += 1
        site = tmp_path / f"{number}"
        shutil.copytree(start, site, symlinks=True)
        with hit(number, interrupt, once=True) as made, suppress(KeyboardInterrupt):
            change(site)
        if number > len(made):
            break
        settle(site)
        assert without_names(tree(site)) in (without_names(old), without_names(new)), number
        shutil.rmtree(site)
