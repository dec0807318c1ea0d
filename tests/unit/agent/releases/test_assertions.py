"""A release is held to what its engine says, without a GPU."""

import os
import shutil
import struct
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkfleet.agent.errors import HostError
from sparkfleet.agent.releases import assertions, elf
from sparkfleet.agent.shapes import Assertions

#: One that everybody may run, as a release's must be.
SYSTEM_PYTHON = shutil.which("python3", path="/usr/bin:/bin")

TORCH = "from typing import Optional\n\n__version__ = '2.11.0'\ncuda: Optional[str] = {cuda!r}\nhip = None\n"


def library(path: Path, *needed: str, machine: int = 183) -> None:
    """A file with the headers of a library that is linked to ``needed``, and nothing else."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name in needed)
    base, at = 0x10000, 64 + 2 * 56
    offsets = [1 + sum(len(one) + 1 for one in needed[:n]) for n in range(len(needed))]
    tags = [(1, offset) for offset in offsets] + [(5, base + at), (10, len(names)), (0, 0)]
    dynamic = b"".join(struct.pack("<QQ", *tag) for tag in tags)
    whole = at + len(names) + len(dynamic)
    head = (
        b"\x7fELF\x02\x01\x01"
        + bytes(9)
        + struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    )
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, base, base, whole, whole, 4096)
    place = at + len(names)
    dyn = struct.pack("<IIQQQQQQ", 2, 6, place, base + place, base + place, len(dynamic), len(dynamic), 8)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(head + load + dyn + names + dynamic)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The site-packages of an engine for CUDA 13."""
    site = tmp_path / "lib/python3.12/site-packages"
    (site / "torch").mkdir(parents=True)
    (site / "torch/version.py").write_text(TORCH.format(cuda="13.0"))
    library(site / "vllm/_C.abi3.so", "libtorch.so", "libcudart.so.13", "libc.so.6")
    library(site / "vllm/cumem_allocator.abi3.so", "libc.so.6")
    return site


def check(site: Path, wanted: Assertions) -> None:
    assertions.check(site.parents[2], site, wanted)


class TestCuda:
    def test_the_right_one_passes(self, site: Path) -> None:
        check(site, Assertions(cuda=13))

    @pytest.mark.parametrize("cuda", ["12.9", None, "131"])
    def test_a_torch_of_another_is_told(self, site: Path, cuda: str | None) -> None:
        (site / "torch/version.py").write_text(TORCH.format(cuda=cuda))
        with pytest.raises(HostError, match=f"expected CUDA 13, found: torch is built for CUDA {cuda or 'none'}"):
            check(site, Assertions(cuda=13))

    def test_a_vllm_of_another_is_told_with_its_library(self, site: Path) -> None:
        library(site / "vllm/_moe_C.abi3.so", "libcudart.so.12")
        with pytest.raises(HostError, match=r"found: vllm/_moe_C\.abi3\.so needs libcudart\.so\.12"):
            check(site, Assertions(cuda=13))

    def test_a_vllm_without_any_is_told(self, site: Path) -> None:
        (site / "vllm/_C.abi3.so").unlink()
        with pytest.raises(HostError, match="no library of vllm is linked to libcudart"):
            check(site, Assertions(cuda=13))

    def test_an_engine_without_cuda_is_not_asked(self, site: Path) -> None:
        shutil.rmtree(site / "torch")
        check(site, Assertions())


class TestElf:
    def test_this_python_needs_what_it_is_linked_to(self) -> None:
        found = elf.read(Path(os.path.realpath(sys.executable)))
        assert found.machine == os.uname().machine
        assert any(name.startswith("libc.so") for name in found.needed)

    def test_another_machines_library_is_read_alike(self, site: Path) -> None:
        assert elf.read(site / "vllm/_C.abi3.so") == elf.Elf("aarch64", ("libtorch.so", "libcudart.so.13", "libc.so.6"))

    @given(st.binary(max_size=300), st.booleans())
    def test_whatever_the_bytes_are_it_is_a_library_or_an_error(
        self, tmp_path_factory: pytest.TempPathFactory, data: bytes, headed: bool
    ) -> None:
        path = tmp_path_factory.mktemp("elf") / "x.so"
        path.write_bytes((b"\x7fELF\x02\x01" if headed else b"") + data)
        try:
            elf.read(path)
        except HostError as error:
            assert str(path) in str(error)


class TestImports:
    @pytest.fixture
    def release(self, tmp_path: Path) -> Path:
        os.chmod(tmp_path, 0o755)
        for parent in tmp_path.parents:
            if parent.name.startswith("pytest-"):
                os.chmod(parent, 0o755)
        (tmp_path / "bin").mkdir()
        program = tmp_path / "bin/python"
        program.write_text(f'#!/bin/sh\nexec {SYSTEM_PYTHON} "$@"\n')
        program.chmod(0o755)
        return tmp_path

    pytestmark = pytest.mark.skipif(os.geteuid() != 0 or not SYSTEM_PYTHON, reason="only root can become nobody")

    def test_what_can_be_imported_passes(self, release: Path) -> None:
        assertions.check(release, release, Assertions(imports=("json", "csv")))

    def test_what_cannot_is_told_with_python_s_own_words(self, release: Path) -> None:
        with pytest.raises(HostError) as caught:
            assertions.check(release, release, Assertions(imports=("json", "no_such_thing")))
        assert "`import no_such_thing` failed: ModuleNotFoundError: No module named 'no_such_thing'" in str(
            caught.value
        )

    def test_one_that_never_ends_is_told(self, release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(assertions, "TIMEOUT", 0.0)
        with pytest.raises(HostError, match="`import json` did not end within"):
            assertions.check(release, release, Assertions(imports=("json",)))

    def test_another_machines_release_is_not_run_and_that_is_said(
        self, release: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assertions.check(release, release, Assertions(imports=("no_such_thing",)), foreign=True)
        assert "another kind of machine: import no_such_thing" in capsys.readouterr().out
