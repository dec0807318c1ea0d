"""The real engines, down to the last file: what is laid down is the lock's, the declared winner's and the patch set's.

Nothing of them is run: they are for another machine. That they serve on a GB10 is not shown by anything here.
"""

import base64
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import distributions
from pathlib import Path

import pytest

from sparkfleet.agent import patching
from sparkfleet.agent.errors import HostError
from sparkfleet.agent.releases import assertions, deep, overlaps, release
from sparkfleet.agent.shapes import Overlap, Release
from sparkfleet.catalog.engines import engine, uv
from sparkfleet.patchset import for_lock
from tests.engines import closure as closures
from tests.engines.closure import AUTHOR, Closure
from tests.unit.engines.wheels import write_wheel

pytestmark = pytest.mark.engines

BASE, CU13 = "nvidia-cutlass-dsl-libs-base", "nvidia-cutlass-dsl-libs-cu13"
MMA = "nvidia_cutlass_dsl/python_packages/cutlass/cute/nvgpu/warp/mma.py"
BUILD_SCRIPT = "build_backend.py"


@pytest.fixture(scope="module", params=["vllm-0.20.1", "vllm-0.23.0", "vllm-0.33.0"])
def closure(request: pytest.FixtureRequest) -> Iterator[Closure]:
    """An engine's release. One at a time is on the disk."""
    made = closures.closure(request.param)
    yield made
    shutil.rmtree(made.path)


@pytest.fixture
def broken(closure: Closure) -> Iterator[Path]:
    """A copy of the release, to be broken."""
    path = closures.copy(closure, "broken")
    yield path
    shutil.rmtree(path)


def by_its_record(site: Path, distribution: str) -> dict[str, str]:
    """Hash of each file by its path, read by Python's own reader of RECORDs."""
    (found,) = distributions(name=distribution, path=[str(site)])
    return {str(file): file.hash.value for file in found.files or () if file.hash}


def hashed(path: Path) -> str:
    """As a RECORD writes it."""
    return base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).rstrip(b"=").decode()


def replaced(path: Path, content: bytes) -> None:
    """Give a file of the copy other bytes; the release's own, which is linked to it, keeps its."""
    path.unlink()
    path.write_bytes(content)


def two_cutlasses(closure: Closure) -> None:
    if CU13 not in {one.winner for one in closure.engine.overlaps}:
        pytest.skip("from 4.6 the distributions of CUTLASS DSL share no path")


def test_the_lock_is_what_the_pins_resolve_to(closure: Closure) -> None:
    command = (sys.executable, "-c", "from sparkfleet.cli import main; main()", "lock", closure.engine.name, "--check")
    path = f"{closures.root()}/tools/uv-{uv().version}:{os.environ['PATH']}"
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PATH": path})
    assert done.returncode == 0, done.stdout + done.stderr


class TestWhatIsLaidDown:
    def test_every_contested_file_is_its_declared_winners(self, closure: Closure) -> None:
        content = release.read(closure.path)
        for one in closure.engine.overlaps:
            winner, loser = (by_its_record(closure.site, name) for name in (one.winner, one.loser))
            contested = {path for path, digest in winner.items() if loser.get(path, digest) != digest}
            assert contested, f"{one.winner} and {one.loser} share nothing; the engine's file should not name them"
            assert contested <= {*content["overlaps"], *content["patched"]}
            for path in contested - content["patched"].keys():
                assert hashed(closure.site / path) == winner[path], path

    def test_the_compiler_of_cutlass_is_cu13s(self, closure: Closure) -> None:
        two_cutlasses(closure)
        content = release.read(closure.path)
        (compiler,) = closure.site.glob("nvidia_cutlass_dsl/python_packages/cutlass/_mlir/_mlir_libs/_cutlass_ir.*.so")
        assert str(compiler.relative_to(closure.site)) in content["overlaps"]
        winner = by_its_record(closure.site, CU13)
        assert hashed(compiler) == winner[str(compiler.relative_to(closure.site))]
        kept = closure.site / ".sparkfleet-patches" / "originals"
        shipped = {hashed(path) for path in (closure.site / MMA, *(kept.iterdir() if kept.exists() else ()))}
        assert winner[MMA] in shipped, "mma.py is cu13's, or was patched from cu13's"

    def test_the_patch_set_is_applied(self, closure: Closure) -> None:
        wanted = for_lock(closure.engine, closure.engine.lock.read_text(encoding="utf-8"))
        assert patching.status(closure.site, wanted).converged

    def test_it_is_for_cuda_13(self, closure: Closure) -> None:
        assert closure.engine.assertions.cuda == 13
        assert assertions.torch_cuda(closure.site).startswith("13.")
        linked = assertions.libcudart(closure.site / "vllm")
        assert linked["_C_stable_libtorch.abi3.so"] == 13
        assert set(linked.values()) == {13}

    def test_an_engine_that_should_be_for_cuda_12_is_not_sealed(self, closure: Closure) -> None:
        wanted = replace(closure.engine.assertions.order, cuda=12)
        with pytest.raises(HostError, match=r"expected CUDA 12, found: torch is built for CUDA 13\.\d, vllm/"):
            assertions.check(closure.path, closure.site, wanted, foreign=True)

    def test_it_is_byte_compiled(self, closure: Closure) -> None:
        record = by_its_record(closure.site, "vllm")
        sources = [closure.site / path for path in record if path.endswith(".py")]
        assert len(sources) > 1000
        assert [path for path in sources if not list((path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"))] == []

    def test_guard_and_deep_verification_find_nothing(self, closure: Closure) -> None:
        assert release.state(closure.path).sealed
        wrong, files, size = deep.check(closure.path)
        assert wrong == []
        assert files > 50_000 and size > 7e9


class TestWhatIsDoneToItLater:
    def test_a_loser_installed_again_is_seen(self, closure: Closure, broken: Path) -> None:
        two_cutlasses(closure)
        order = closures.build_order(closure.engine, closures.root() / f"wheels-{closure.engine.name}")
        closures.uv_pip(order, broken, "--reinstall", BASE)
        site = release.site_packages(broken)
        assert "libs_base" in release.state(broken).problem
        with pytest.raises(HostError, match=f"expected the file of {CU13} by its RECORD, found another"):
            overlaps.verify(site, order.overlaps)

    def test_an_edited_mma_is_seen(self, closure: Closure, broken: Path) -> None:
        two_cutlasses(closure)
        file = release.site_packages(broken) / MMA
        replaced(file, file.read_bytes().replace(b"sm_121a", b"sm_121f", 1))
        assert MMA in release.state(broken).problem

    def test_bytes_that_nobody_would_notice_are_found_by_reading_them(self, closure: Closure, broken: Path) -> None:
        site = release.site_packages(broken)
        library = site / "vllm/_C_stable_libtorch.abi3.so"
        content = bytearray(library.read_bytes())
        content[len(content) // 2] ^= 1
        replaced(library, bytes(content))
        (site / "vllm/sitecustomize.py").write_text("")
        (site / "torch/version.py").unlink()
        assert release.state(broken).sealed, "the guard of a unit does not read libraries: that takes a minute"
        assert deep.check(broken)[0] == [
            "torch/version.py: is gone",
            "vllm/_C_stable_libtorch.abi3.so: has other bytes",
            "vllm/sitecustomize.py: belongs to no distribution",
        ]


class TestTheBuildItself:
    """With the two distributions of CUTLASS DSL 4.4.2 alone: that takes seconds."""

    @pytest.fixture
    def order(self) -> Iterator[Release]:
        wanted = engine("vllm-0.20.1")
        whole = closures.build_order(wanted, closures.wheels(wanted))
        order = closures.only(whole, "two-cutlasses", {BASE, CU13})
        yield order
        for path in (Path(order.path), release.beside(Path(order.path))):
            shutil.rmtree(path, ignore_errors=True)

    @pytest.mark.parametrize("winner, loser", [(CU13, BASE), (BASE, CU13)])
    def test_who_is_declared_wins_whatever_uv_did(self, order: Release, winner: str, loser: str) -> None:
        with closures.own_receipt():
            release.apply(replace(order, overlaps=(Overlap(winner, loser),)), AUTHOR)
        site = release.site_packages(release.beside(Path(order.path)))
        record, other = by_its_record(site, winner), by_its_record(site, loser)
        contested = [path for path, digest in record.items() if other.get(path, digest) != digest]
        assert len(contested) == 93
        assert all(hashed(site / path) == record[path] for path in contested)

    def test_what_is_not_declared_stops_it_and_leaves_nothing(self, order: Release) -> None:
        with pytest.raises(HostError) as caught:
            release.apply(replace(order, overlaps=()), AUTHOR)
        assert f"{BASE} and {CU13}: nvidia_cutlass_dsl/" in str(caught.value)
        assert "and 90 more" in str(caught.value) and "Nothing was switched" in str(caught.value)
        assert not release.beside(Path(order.path)).exists()

    def test_a_third_owner_stops_it(self, order: Release, tmp_path: Path) -> None:
        stranger = write_wheel(tmp_path, "stranger", "1.0", {MMA: "ARCHS = []\n"})
        with pytest.raises(HostError) as caught:
            release.apply(closures.only(order, "two-cutlasses", {BASE, CU13}, stranger), AUTHOR)
        assert f"{BASE} and stranger: {MMA}; {CU13} and stranger: {MMA}" in str(caught.value)
