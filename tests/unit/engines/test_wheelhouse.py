"""A wheelhouse is filled from a lock: each byte checked, nothing fetched twice, whatever stops it."""

import fcntl
import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from sparkfleet import wheelhouse
from sparkfleet.agent.releases.lock_file import find_wheels, parse
from sparkfleet.catalog import engines
from sparkfleet.catalog.engines import Engine, Overlap, Source
from sparkfleet.cli import wheelhouse as command
from sparkfleet.errors import UserError
from sparkfleet.locking.lock import render
from sparkfleet.locking.uv import Wheel
from sparkfleet.overlaps import undeclared
from sparkfleet.pins import Pin
from sparkfleet.pip import Pip
from tests.unit.engines.wheels import engine, write_wheel

NAMES = ("vllm", "torch", *(f"w{n}" for n in range(12)))


class Index:
    """A package index, and the pip that asks it: what was asked for, in which batches, and with which options."""

    def __init__(self, stock: Path) -> None:
        self.stock = stock
        self.broken: set[str] = set()
        self.asked: list[list[str]] = []
        self.given = ""
        self.ready = threading.Event()

    def also_from(self, index: str) -> "Index":
        self.given = index
        return self

    def download(self, pins, directory, *, hashed=True):  # type: ignore[no-untyped-def]
        assert hashed
        directory.mkdir(parents=True)
        self.asked.append([pin.name for pin in pins])
        for pin in pins:
            if pin.name in self.broken:
                self.ready.wait(5)
                raise UserError(f"{pin.name} cannot be had")
            (wheel,) = self.stock.glob(f"{pin.name}-*.whl")
            (directory / wheel.name).write_bytes(wheel.read_bytes())
        self.ready.set()

    @property
    def names(self) -> list[str]:
        return [name for batch in self.asked for name in batch]


def locked(path: Path) -> Wheel:
    name, version, *_ = path.name.split("-")
    return Wheel(name, version, path.name, path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())


@pytest.fixture
def index(here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    stock = tmp_path / "stock"
    stock.mkdir()
    closure = [locked(write_wheel(stock, name, "9", {f"{name}/x": name * 50})) for name in NAMES]
    uv = locked(write_wheel(stock, "uv", "0.13.9"))
    (here / "vllm-9.yaml").write_text("name: vllm-9\ntitle: t\npython: ['3.12']\npins: {vllm: '9'}\n")
    (here / "vllm-9.lock").write_text(render(engine(), closure))
    (here / "uv.txt").write_text(f"uv==0.13.9 --hash=sha256:{uv.sha256} --hash=sha256:{'f' * 64}\n")
    made = Index(stock)

    @contextmanager
    def pip_for(*_: object) -> Iterator[Index]:
        yield made

    monkeypatch.setattr(wheelhouse, "pip_for", pip_for)
    monkeypatch.setattr(wheelhouse, "LARGE", 10**9)
    return made


@pytest.fixture
def dest(tmp_path: Path) -> Path:
    return tmp_path / "house"


def fill(dest: Path, said: list[str] | None = None, wanted: Engine | None = None, **sources: str) -> wheelhouse.Need:
    return wheelhouse.make(wanted or engine(), dest, sources, (said if said is not None else []).append)


def test_it_holds_all_that_a_host_needs(index: Index, dest: Path) -> None:
    said: list[str] = []
    lacked = fill(dest, said)
    assert (lacked.wheels, len(lacked.missing)) == (15, 15)
    lock = (dest / "vllm-9.lock").read_text()
    assert lock == engine().lock.read_text()
    assert set(find_wheels(parse(lock), dest)) == set(NAMES)
    assert (dest / "uv-0.13.9-py3-none-any.whl").is_file()
    assert not list(dest.glob("incoming-*"))
    assert "vllm-9: 0 wheels there (0 MB), 15 to fetch" in said[0]
    assert "15 of 15 wheels" in said[-1] and " MB, " in said[-1] and said[-1].endswith(" s")


def test_nothing_is_fetched_twice(index: Index, dest: Path) -> None:
    fill(dest)
    index.asked.clear()
    assert fill(dest).missing == ()
    assert index.asked == []


@pytest.mark.parametrize("content", [b"", b"cut sho"])
def test_a_damaged_wheel_alone_is_fetched_again(index: Index, dest: Path, content: bytes) -> None:
    fill(dest)
    index.asked.clear()
    (dest / "w3-9-py3-none-any.whl").write_bytes(content)
    (dest / "w4-9-py3-none-any.whl").unlink()
    fill(dest)
    assert sorted(index.names) == ["w3", "w4"]
    assert set(find_wheels(parse(engine().lock.read_text()), dest)) == set(NAMES)


def test_what_came_before_a_failure_is_kept_and_no_lock_says_it_is_complete(index: Index, dest: Path) -> None:
    index.broken.add("w0")
    with pytest.raises(UserError, match="w0 cannot be had"):
        fill(dest)
    assert not (dest / "vllm-9.lock").exists()
    kept = {path.name.split("-")[0] for path in dest.glob("*.whl")}
    assert kept
    index.broken.clear()
    index.asked.clear()
    fill(dest)
    assert not kept & set(index.names)
    assert not list(dest.glob("incoming-*"))


def test_what_a_killed_run_left_half_is_not_taken(index: Index, dest: Path) -> None:
    half = dest / "incoming-0"
    half.mkdir(parents=True)
    (half / "w1-9-py3-none-any.whl").write_bytes(b"half")
    fill(dest)
    assert "w1" in index.names


def test_large_wheels_come_alone(index: Index, dest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheelhouse, "LARGE", 20_000_000)  # uv's, as nothing else here
    fill(dest)
    assert index.asked.count(["uv"]) == 1
    assert max(map(len, index.asked)) == wheelhouse.BATCH


def test_no_room_is_said_before_anything_is_fetched(index: Index, dest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheelhouse, "ROOM_FOR_THE_REST", 10**18)
    with pytest.raises(UserError, match=r"takes \d+\.\d GB, .* are free there\. Free some"):
        fill(dest)
    assert index.asked == []


def test_room_is_for_what_is_missing_and_what_is_moved(index: Index, dest: Path) -> None:
    lacking = wheelhouse.need(engine(), dest)
    largest = sorted((size for size in engines.wheels(engine().lock.read_text()).values()), reverse=True)
    assert lacking.size == sum(largest) + wheelhouse.UV_SIZE
    assert lacking.room == lacking.size + wheelhouse.UV_SIZE + largest[0] + wheelhouse.ROOM_FOR_THE_REST
    fill(dest)
    assert wheelhouse.need(engine(), dest).room == 0


def test_two_runs_do_not_fill_it_together(index: Index, dest: Path) -> None:
    dest.mkdir()
    handle = os.open(dest, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        with pytest.raises(UserError, match="another run"):
            fill(dest)
    finally:
        os.close(handle)


def test_wheels_of_another_engine_stay(index: Index, dest: Path) -> None:
    dest.mkdir()
    other = write_wheel(dest, "w1", "8")
    fill(dest)
    assert other.is_file()


class TestSources:
    def wanted(self) -> Engine:
        return engine(
            sources=[
                Source(distribution="vllm", kind="wheel", what="yours"),
                Source(distribution="torch", kind="index", what="CUDA"),
            ],
            pins={"vllm": "9", "torch": "9"},
        )

    def test_a_given_wheel_is_copied_and_a_given_index_asked_for_its_own_alone(self, index: Index, dest: Path) -> None:
        wheel = index.stock / "vllm-9-py3-none-any.whl"
        fill(dest, None, self.wanted(), vllm=str(wheel), torch="x://given")
        assert "vllm" not in index.names
        assert ["torch"] in index.asked
        assert set(find_wheels(parse(engine().lock.read_text()), dest)) == set(NAMES)
        assert index.given == "x://given"

    def test_one_that_is_not_given_is_asked_for(self, index: Index, dest: Path) -> None:
        with pytest.raises(UserError, match=r"(vllm|torch) 9: only you know where it is; give --source"):
            fill(dest, None, self.wanted())

    def test_a_given_wheel_that_is_another_is_refused(self, index: Index, dest: Path, tmp_path: Path) -> None:
        other = write_wheel(tmp_path, "vllm", "9", {"x": "other"})
        with pytest.raises(UserError, match="expected the wheel of vllm 9 that the lock was made from"):
            fill(dest, None, self.wanted(), vllm=str(other), torch="x://given")


def test_an_engine_without_a_lock_is_refused_with_its_command(index: Index, dest: Path, here: Path) -> None:
    (here / "vllm-9.lock").unlink()
    with pytest.raises(UserError, match=r"it has no lock\. Make it with `sparkfleet lock vllm-9`"):
        fill(dest)
    assert not dest.exists()


def test_the_command_says_what_it_would_take_and_then_takes_it(index: Index, dest: Path) -> None:
    dry = CliRunner().invoke(command.command, ["vllm-9", "--dest", str(dest), "--dry"])
    assert dry.exit_code == 0 and "vllm-9: 15 wheels, 0 there" in dry.output and "to fetch: 15 wheels" in dry.output
    assert not dest.exists() and index.asked == []
    done = CliRunner().invoke(command.command, ["vllm-9", "--dest", str(dest)])
    assert done.exit_code == 0 and "15 wheels of vllm-9, complete; 15 fetched now" in done.output
    bad = CliRunner().invoke(command.command, ["vllm-8", "--dest", str(dest)])
    assert bad.exit_code == 2


def test_a_file_where_the_directory_should_be(index: Index, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="Not a directory"):
        fill(tmp_path / "file" / "house")


class TestOverlaps:
    """Two wheels with one path: the same bytes are no matter, other bytes are one unless it is declared."""

    def wheels(self, directory: Path, **files: dict[str, str]) -> dict[str, Path]:
        return {name: write_wheel(directory, name, "1", content) for name, content in files.items()}

    def test_other_bytes_are_named_by_pair_and_path(self, tmp_path: Path) -> None:
        one = {f"d/{n}": "one" for n in range(5)} | {"same": "s", "own": "1"}
        other = {f"d/{n}": "two" for n in range(5)} | {"same": "s"}
        found = undeclared(self.wheels(tmp_path, beta=one, alpha=other, gamma={"own2": "1"}), [])
        assert found == ["alpha and beta: d/0, d/1, d/2 and 2 more"]

    def test_a_declared_pair_is_as_it_should_be(self, tmp_path: Path) -> None:
        wheels = self.wheels(tmp_path, alpha={"x": "1"}, beta={"x": "2"}, gamma={"x": "3"})
        declared = [Overlap(winner="beta", loser="alpha", why="w"), Overlap(winner="gamma", loser="alpha", why="w")]
        assert undeclared(wheels, declared) == ["beta and gamma: x"]

    def test_a_data_directory_lies_where_it_is_installed(self, tmp_path: Path) -> None:
        wheels = self.wheels(
            tmp_path,
            alpha={"x/y": "1", "bin/t": "1"},
            beta={"beta-1.data/purelib/x/y": "2", "beta-1.data/scripts/t": "2"},
        )
        assert undeclared(wheels, []) == ["alpha and beta: x/y"]

    def test_what_is_no_archive_is_said(self, tmp_path: Path) -> None:
        (tmp_path / "a-1-py3-none-any.whl").write_text("no")
        with pytest.raises(UserError, match="expected a wheel; it is no archive"):
            undeclared({"a": tmp_path / "a-1-py3-none-any.whl"}, [])

    def test_a_wheelhouse_with_one_is_not_called_complete(self, index: Index, dest: Path, here: Path) -> None:
        closure = [locked(path) for path in sorted(index.stock.glob("*.whl")) if not path.name.startswith("uv-")]
        for name in ("w1", "w2"):
            wheel = write_wheel(index.stock, name, "9", {"shared": name})
            closure = [locked(wheel) if one.name == name else one for one in closure]
        engine().lock.write_text(render(engine(), closure))
        with pytest.raises(UserError, match=r"does not say which wins\. w1 and w2: shared"):
            fill(dest)
        assert not (dest / "vllm-9.lock").exists()
        index.asked.clear()
        fill(dest, None, engine(overlaps=[{"winner": "w1", "loser": "w2", "why": "x"}]))
        assert index.asked == [] and (dest / "vllm-9.lock").exists()


def test_another_lock_replaces_the_engines_own(index: Index, dest: Path, tmp_path: Path) -> None:
    lines = engine().lock.read_text().splitlines(keepends=True)
    other = tmp_path / "other.lock"
    start = next(n for n, line in enumerate(lines) if line.startswith("w1=="))
    other.write_text("".join(lines[start : start + 2]))
    wheelhouse.make(engine(), dest, {}, lambda _: None, other)
    assert sorted(index.names) == ["uv", "w1"]
    assert (dest / "vllm-9.lock").read_text() == other.read_text()


def test_an_index_that_the_user_gives_is_told_to_pip_where_nobody_sees_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its environment: an address may hold a password, and everybody may read the arguments of a process."""
    said = tmp_path / "said"
    program = tmp_path / "pip"
    program.write_text(f'#!/bin/sh\necho "$@" > {said}\necho "$PIP_EXTRA_INDEX_URL" >> {said}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "x://known")
    pip = Pip((str(program),), "3.12", "aarch64", 35).also_from("x://ann:s3cret@given")
    pip.download([Pin("torch", "9", "", ("a" * 64,))], tmp_path / "incoming")
    arguments, index = said.read_text().splitlines()
    assert "s3cret" not in arguments and index == "x://ann:s3cret@given x://known"
    assert "s3cret" not in repr(pip)
