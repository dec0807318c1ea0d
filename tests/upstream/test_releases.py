"""The whole patch set on the files of real releases: states, apply, apply again, give back."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkfleet.agent.patching import PatchSet, apply, revert, status
from sparkfleet.agent.patching.records import installed
from sparkfleet.catalog.patches import load_patches
from sparkfleet.patchset import compile_set, for_directory

from .verdicts import FLASHINFER, OF_FLASHINFER, OF_VLLM, VLLM, P, U, X
from .wheels import cache, copy, lay, lay_files, sources

pytestmark = pytest.mark.upstream

PATCHES = load_patches()
EVERYTHING = tuple(patch.id for patch in PATCHES)
EDITED = tuple(patch.id for patch in PATCHES if any(target.edits for target in patch.targets))

PATHS = sorted({target.path for patch in PATCHES for target in patch.targets})

#: releases that no other test names: a patch is right there too, or says that it does not know them
BETWEEN = ("0.18.1", "0.20.2", "0.21.0", "0.24.0", "0.28.0")

RELEASES = [("vllm", version) for version in VLLM] + [("flashinfer-python", version) for version in FLASHINFER]


@pytest.fixture
def empty() -> Iterator[Path]:
    # Beside the cache, so that it can be hard-linked from it, as uv links from its own.
    with tempfile.TemporaryDirectory(dir=cache(), prefix="test-") as directory:
        yield Path(directory).resolve() / "site packages"


def compiled(site: Path, *wanted: str) -> PatchSet:
    names = frozenset(name for patch in PATCHES for name in patch.distributions)
    versions = {name: many[0].version for name, many in installed(site, names).items()}
    return compile_set(PATCHES, versions, wanted, "test")


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def digests(site: Path) -> dict[str, str]:
    return {str(path.relative_to(site)): digest(path) for path in sorted(site.rglob("*")) if path.is_file()}


def marks(site: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path.relative_to(site)): (os.lstat(path).st_ino, os.lstat(path).st_mtime_ns) for path in site.rglob("*")
    }


@pytest.mark.parametrize(
    ("distribution", "version", "patches", "states"),
    [("vllm", version, OF_VLLM, states) for version, states in VLLM.items()]
    + [("flashinfer-python", version, OF_FLASHINFER, states) for version, states in FLASHINFER.items()],
)
def test_states(
    empty: Path, distribution: str, version: str, patches: tuple[str, ...], states: tuple[str, ...]
) -> None:
    site = lay(empty, [(distribution, version)])
    found = {row.patch: row.state for row in status(site, for_directory(site)).rows}
    assert found == dict.fromkeys(EVERYTHING, X) | dict(zip(patches, states, strict=True))


@pytest.mark.parametrize(("distribution", "version"), RELEASES)
def test_all_edits_there_and_back(empty: Path, distribution: str, version: str) -> None:
    site = lay(empty, [(distribution, version)])
    shipped, cached = digests(site), digests(sources(distribution, version))
    everything = compiled(site, *EDITED)
    applicable = {row.patch for row in status(site, everything).rows if row.state == P}
    report = apply(site, everything)
    assert report.converged and bool(report.changed) == bool(applicable)
    assert {row.patch for row in report.rows if row.state == "applied"} == applicable
    assert all(probe.outcome != "failed" for probe in report.probes)
    before = marks(site)
    assert apply(site, everything).changed == () and marks(site) == before
    assert {path for path, one in digests(site).items() if shipped.get(path, one) != one} == set(report.changed)
    revert(site, everything)
    assert digests(site) == shipped
    assert digests(sources(distribution, version)) == cached  # the other links of the same files


@pytest.mark.parametrize(
    "entry",
    json.loads((Path(__file__).parent / "patched.json").read_text()),
    ids=lambda entry: f"{entry['patch']}-{entry['distribution']}-{entry['version']}",
)
def test_patched_files_are_the_known_ones(empty: Path, entry: dict[str, str]) -> None:
    site = lay_files(empty, entry["distribution"], entry["version"], PATHS)
    assert digest(site / entry["path"]) == entry["pristine"]
    assert apply(site, compiled(site, entry["patch"])).changed == (entry["path"],)
    assert digest(site / entry["path"]) == entry["patched"]


@pytest.mark.parametrize("version", BETWEEN)
def test_releases_that_nobody_named(empty: Path, version: str) -> None:
    site = lay(empty, [("vllm", version)])
    shipped = digests(site)
    everything = compiled(site, *EDITED)
    states = {row.patch: row.state for row in status(site, everything).rows}
    assert not {"conflict", "missing"} & set(states.values()), states
    assert states["P2"] == states["P4a"] == states["P4b"] == P
    for one in ("P1", "P7", "P12"):  # each is to be done or done upstream, never out of sight
        assert states[one] in (P, U)
    assert apply(site, everything).converged
    revert(site, everything)
    assert digests(site) == shipped


def test_decoy_is_left_alone(empty: Path) -> None:
    """FlashInfer ships CUTLASS' file too: it is not the one that Python imports."""
    site = lay(empty, [("flashinfer-python", "0.6.9"), ("nvidia-cutlass-dsl-libs-cu13", "4.4.2")])
    decoy = site / "flashinfer/data/cutlass/python/CuTeDSL/cutlass/cute/nvgpu/warp/mma.py"
    real = site / "nvidia_cutlass_dsl/python_packages/cutlass/cute/nvgpu/warp/mma.py"
    shipped = digest(decoy)
    assert digest(real) == shipped
    apply(site, compiled(site, "P9"))
    assert digest(decoy) == shipped and digest(real) != shipped
    shutil.rmtree(site / "nvidia_cutlass_dsl")
    assert {row.patch: row.state for row in status(site, compiled(site, "P9")).rows}["P9"] == "missing"


def test_reinstalled_wheel_is_pristine_again(empty: Path) -> None:
    site = lay(empty, [("vllm", "0.20.1")])
    apply(site, for_directory(site))
    for path in [path for path in site.rglob("*") if path.is_file() and ".sparkfleet" not in str(path)]:
        path.unlink()  # as an installer does before it installs anew
    copy(sources("vllm", "0.20.1"), site)
    assert {row.patch: row.state for row in status(site, for_directory(site)).rows}["P7"] == P
    assert apply(site, for_directory(site)).converged


def test_the_fork(empty: Path) -> None:
    """The lines of the fork, in the stock file: P5 and P6 apply there, together, and to nothing else."""
    site = lay(empty, [("vllm", "0.17.1")])
    path = "vllm/model_executor/layers/quantization/mxfp4.py"
    stock = (site / path).read_text()
    anchor = "    if current_platform.is_cuda():\n"
    assert stock.count(anchor) >= 1
    fork = stock.replace(
        anchor,
        f"{anchor}"
        "        capability = current_platform.get_device_capability()\n"
        "        is_sm12x = capability is not None and capability.major == 12\n"
        "        if is_sm12x:\n"
        "            from vllm.model_executor.layers.quantization.utils.quant_utils import (\n"
        "                cutlass_fp4_supported,\n"
        "            )\n",
        1,
    )
    (site / path).unlink()
    (site / path).write_text(fork)
    record = next(site.glob("vllm-*.dist-info/RECORD"))
    lines = [line for line in record.read_text().splitlines() if not line.startswith(path)]
    record.unlink()
    record.write_text("\n".join([*lines, f"{path},sha256={_record_hash(fork)},{len(fork)}"]) + "\n")
    report = apply(site, for_directory(site))
    assert {row.patch: row.state for row in report.rows if row.patch in ("P5", "P6")} == dict.fromkeys(
        ("P5", "P6"), "applied"
    )
    text = (site / path).read_text()
    assert "utils.nvfp4_utils import (\n                cutlass_fp4_supported" in text
    assert "if is_sm12x and not (capability.minor >= 1 and envs.VLLM_MXFP4_USE_MARLIN):" in text


def _record_hash(text: str) -> str:
    import base64

    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
