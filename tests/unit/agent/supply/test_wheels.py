"""Wheels come to a host whole or not at all, nothing comes twice, and whoever hands them out is not believed."""

import os
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from sparkfleet.agent.errors import HostError
from sparkfleet.agent.releases.lock_file import find_wheels, parse
from sparkfleet.agent.shapes import Author, DiskNeed, WheelsOrder, WheelSource
from sparkfleet.agent.supply import source as source_module
from sparkfleet.agent.supply import wheel_server, wheels
from sparkfleet.agent.supply.wheel_server import WheelServer

NAMES = ("one", "two", "three")
AUTHOR = Author("r1", "ann")
RELEASE = "vllm-9-abc"


def content(name: str, size: int = 400_000) -> bytes:
    return (name * size).encode()[:size]


class Server(WheelServer):
    """Counts what it is asked for; cuts connections and spoils bytes where it is told to."""

    def __init__(self, directory: Path) -> None:
        self.asked: list[tuple[str, str]] = []
        self.cut_after: list[int] = []
        self.spoil = 0
        super().__init__("127.0.0.1", ["127.0.0.1"], "t", {path.name: path for path in directory.glob("*.whl")})
        self.RequestHandlerClass = _Handler

    def names(self) -> list[str]:
        return [name for name, _ in self.asked if name]


class _Handler(wheel_server._Handler):
    server: Server

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        self.server.asked.append((name, self.headers.get("Range", "")))
        if name:
            self.wfile = _Spoiled(self.wfile, self.server)  # type: ignore[assignment]
        super().do_GET()
        if name and self.wfile.cut:  # type: ignore[attr-defined]
            self.close_connection = True


class _Spoiled:
    def __init__(self, file: Any, server: Server) -> None:
        self.file, self.server, self.cut = file, server, False

    def write(self, data: bytes) -> int:
        if data.startswith(b"HTTP/"):
            return int(self.file.write(data))
        if self.server.spoil:
            self.server.spoil -= 1
            data = b"x" * len(data)
        if self.server.cut_after:
            data, self.cut = data[: self.server.cut_after.pop()], True
        return int(self.file.write(data))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


@pytest.fixture
def house(tmp_path: Path) -> Path:
    house = tmp_path / "house"
    house.mkdir()
    for name in (*NAMES, "uv"):
        (house / f"{name}-1-py3-none-any.whl").write_bytes(content(name))
    return house


@pytest.fixture
def server(house: Path) -> Iterator[Server]:
    server = Server(house)
    server.start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "PAUSE", 0.0)
    monkeypatch.setattr(wheels, "write", lambda path, text, mode: path.write_text(text))


@pytest.fixture
def order(server: Server, tmp_path: Path) -> WheelsOrder:
    lock = "".join(f"{name}==1 --hash=sha256:{sha256(content(name)).hexdigest()}\n" for name in NAMES)
    source = WheelSource("spark-01", "127.0.0.1", server.port, "t")
    uv = (sha256(content("uv")).hexdigest(), "f" * 64)
    return WheelsOrder(RELEASE, str(tmp_path / "wheels"), str(tmp_path), 1, lock, "1", uv, "a test", source)


def bring(order: WheelsOrder) -> dict[str, Path]:
    wheels.apply(order, AUTHOR)
    return find_wheels(parse(order.lock), Path(order.directory))


def part(order: WheelsOrder, name: str) -> Path:
    return Path(order.directory) / f".{name}-1-py3-none-any.whl.part"


def complete(order: WheelsOrder) -> bool:
    return wheels.complete(Path(order.directory), [order.release]) == (order.release,)


def test_all_that_a_release_is_built_from_comes(order: WheelsOrder, server: Server, capsys: Any) -> None:
    assert not complete(order)
    assert set(bring(order)) == set(NAMES)
    assert complete(order)
    assert sorted(server.names()) == sorted(server.wheels)
    assert not [path for path in Path(order.directory).iterdir() if path.suffix == ".part"]
    said = capsys.readouterr().out
    assert "4 wheels to come from spark-01, 1.6 MB" in said and "4 of 4 wheels, 1.6 of 1.6 MB" in said
    assert "4 wheels in" in said and "4 of them brought now" in said


def test_what_is_there_does_not_come_again(order: WheelsOrder, server: Server) -> None:
    bring(order)
    server.asked.clear()
    bring(replace(order, release="another", source=None))
    assert server.asked == []


def test_a_wheel_that_was_changed_comes_again(order: WheelsOrder, server: Server) -> None:
    bring(order)
    server.asked.clear()
    (Path(order.directory) / "two-1-py3-none-any.whl").write_bytes(content("bad"))
    assert not complete(order)
    bring(order)
    assert server.names() == ["two-1-py3-none-any.whl"]
    assert complete(order)


@pytest.mark.parametrize("have", [1, 399_999, 400_000])
def test_it_goes_on_where_it_was_stopped(order: WheelsOrder, server: Server, have: int) -> None:
    Path(order.directory).mkdir()
    part(order, "two").write_bytes(content("two")[:have])
    bring(order)
    asked = [one for one in server.asked if one[0].startswith("two")]
    assert asked == ([("two-1-py3-none-any.whl", f"bytes={have}-")] if have < 400_000 else [])
    assert sum(server.sent.values()) == 4 * 400_000 - have


def test_a_connection_that_is_cut_is_taken_up_again(order: WheelsOrder, server: Server) -> None:
    server.cut_after = [1000, 0, 5000]
    bring(order)
    assert [asked for _, asked in server.asked].count("bytes=5000-") == 2


def test_an_interrupted_part_with_wrong_bytes_is_fetched_again(order: WheelsOrder, server: Server, capsys: Any) -> None:
    Path(order.directory).mkdir()
    part(order, "two").write_bytes(b"y" * 1000)
    bring(order)
    assert "two-1-py3-none-any.whl came with other bytes than the lock's: fetched again" in capsys.readouterr().out


def test_a_part_longer_than_its_wheel_is_thrown_away(order: WheelsOrder, server: Server) -> None:
    Path(order.directory).mkdir()
    part(order, "two").write_bytes(b"y" * 400_001)
    bring(order)


def test_corrupted_once_is_fetched_again(order: WheelsOrder, server: Server, capsys: Any) -> None:
    server.spoil = 1
    bring(order)
    assert capsys.readouterr().out.count("fetched again") == 1


def test_corrupted_twice_is_named_and_the_rest_is_kept(order: WheelsOrder, server: Server, house: Path) -> None:
    (house / "three-1-py3-none-any.whl").write_bytes(content("bad"))
    with pytest.raises(HostError, match=r"three-1-py3-none-any\.whl: what spark-01 hands out is not what the lock"):
        bring(order)
    assert server.names().count("three-1-py3-none-any.whl") == 2
    assert not complete(order) and not part(order, "three").exists()
    (house / "three-1-py3-none-any.whl").write_bytes(content("three"))
    server.asked.clear()
    bring(order)
    assert sorted(server.names()) == ["three-1-py3-none-any.whl", "uv-1-py3-none-any.whl"]


def test_a_wheel_that_is_cut_short_at_the_source_is_named(order: WheelsOrder, server: Server, house: Path) -> None:
    (house / "two-1-py3-none-any.whl").write_bytes(content("two", 399_999))
    with pytest.raises(HostError, match=r"two-1-py3-none-any\.whl: what spark-01 hands out"):
        bring(order)


def test_missing_wheels_are_all_named_before_any_comes(order: WheelsOrder, server: Server) -> None:
    for name in ("one", "three"):
        del server.wheels[f"{name}-1-py3-none-any.whl"]  # type: ignore[attr-defined]
    with pytest.raises(HostError, match=r"the wheelhouse of spark-01 lacks one==1, three==1\."):
        bring(order)
    assert server.names() == []


def test_no_room_is_said_before_any_comes(order: WheelsOrder, server: Server) -> None:
    with pytest.raises(HostError, match=r"the wheels and the release need 1000000000\.00 GB, .* Nothing was fetched"):
        bring(replace(order, unpacked=10**18))
    assert server.names() == []


def test_a_source_that_is_gone_is_named(order: WheelsOrder, server: Server) -> None:
    server.shutdown()
    server.server_close()
    with pytest.raises(HostError, match=r"wheels: spark-01 hands them out at 127\.0\.0\.1, .*Connection refused"):
        bring(order)


def test_a_source_that_goes_away_in_the_middle_is_named_and_what_came_is_kept(
    order: WheelsOrder, server: Server
) -> None:
    server.cut_after = [0] * 20 + [7000]
    with pytest.raises(HostError, match=r"and does not answer .* What came is kept"):
        bring(order)
    assert part(order, "one").stat().st_size == 7000
    server.cut_after = []
    bring(order)
    assert ("one-1-py3-none-any.whl", "bytes=7000-") in server.asked


@pytest.mark.parametrize("name", ["../../x-1-py3-none-any.whl", "one-1-py3-none-any.whl/../x", ".one-1-a-b-c.whl"])
def test_a_source_cannot_name_files_elsewhere(order: WheelsOrder, server: Server, house: Path, name: str) -> None:
    real = server.wheels["one-1-py3-none-any.whl"]
    server.wheels = {name: real}
    with pytest.raises(HostError, match="lacks one==1"):
        bring(order)


def test_a_source_that_sends_no_list_is_said(
    order: WheelsOrder, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheel_server.json, "dumps", lambda _: "[1]")
    with pytest.raises(HostError, match="does not answer with a list of wheels"):
        bring(order)


def test_uv_is_taken_for_this_machine(order: WheelsOrder, server: Server, house: Path) -> None:
    """Its pin has the hashes of every platform, so the hash does not decide."""
    real = server.wheels.pop("uv-1-py3-none-any.whl")  # type: ignore[attr-defined]
    for machine in ("aarch64", "x86_64"):
        server.wheels[f"uv-1-py3-none-manylinux_2_17_{machine}.whl"] = real  # type: ignore[index]
    bring(order)
    assert f"uv-1-py3-none-manylinux_2_17_{os.uname().machine}.whl" in server.names()


def test_the_room_still_needed_is_less_what_came(order: WheelsOrder, server: Server) -> None:
    need = DiskNeed(order.directory, 1_600_000, "wheels", RELEASE)
    assert wheels.still_needed(need) == need
    server.cut_after = [0] * 20 + [7000]
    with pytest.raises(HostError):
        bring(order)
    assert wheels.still_needed(need).size == 1_600_000 - 7000
    server.cut_after = []
    bring(order)
    assert wheels.still_needed(need).size == 0


def test_what_no_release_needs_any_more_is_forgotten(order: WheelsOrder, server: Server) -> None:
    bring(order)
    directory = Path(order.directory)
    (directory / "old-1-py3-none-any.whl").write_bytes(b"12345")
    (directory / ".old-1-py3-none-any.whl.part").write_bytes(b"67")
    (directory / ".gone.json").write_text("{}")
    (directory / "notes.txt").write_text("of an admin")
    assert wheels.forget(directory, {RELEASE: order.lock}) == 9
    assert complete(order) and not (directory / ".gone.json").exists()
    assert wheels.forget(directory, {}) > 1_600_000
    assert [path.name for path in directory.iterdir()] == ["notes.txt"]
    assert wheels.forget(directory / "nowhere", {}) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system")
def test_a_disk_that_runs_full_is_said_and_what_came_is_kept(
    order: WheelsOrder, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = Path(order.directory)
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1900k", "none", str(directory)], check=True)
    try:
        # room that was there when it was looked at is taken by somebody while the first wheel comes
        taken = threading.Event()
        ask = server.verify_request

        def take(request: Any, address: Any) -> bool:
            if not taken.is_set():
                taken.set()
                (directory / "filler").write_bytes(b"0" * 1_000_000)
            return ask(request, address)

        server.verify_request = take  # type: ignore[method-assign]
        monkeypatch.setattr(wheels, "_check_room", lambda *_: None)
        with pytest.raises(HostError, match=r"the disk ran full while wheels came\. What came is kept"):
            bring(order)
        (directory / "filler").unlink()
        came = set(directory.glob("*.whl"))
        assert came
        server.asked.clear()
        bring(order)
        assert not {path.name for path in came} & set(server.names())
    finally:
        subprocess.run(["umount", str(directory)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system")
def test_a_disk_too_small_for_the_wheels_alone_is_said_first(order: WheelsOrder, server: Server) -> None:
    Path(order.directory).mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1000k", "none", order.directory], check=True)
    try:
        with pytest.raises(HostError, match=r"wheels: needs 0\.00 GB, 0\.00 GB are free"):
            bring(order)
        assert server.names() == []
    finally:
        subprocess.run(["umount", order.directory], check=True)
