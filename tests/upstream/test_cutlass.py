"""CUTLASS DSL, really installed: which compiler is on the disk, and whether it makes code for SM121."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkfleet.agent.errors import HostError
from sparkfleet.agent.patching import apply, revert, status
from sparkfleet.patchset import for_directory

from .test_releases import compiled
from .verdicts import CUTLASS, OF_CUTLASS
from .wheels import cache, copy, cutlass, pip, site_packages, sources

pytestmark = pytest.mark.upstream

BASE, CU13 = "nvidia-cutlass-dsl-libs-base", "nvidia-cutlass-dsl-libs-cu13"


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=cache(), prefix="test-") as directory:
        yield Path(directory).resolve() / "venv"


def of_release(site: Path) -> tuple[str, ...]:
    rows = {row.patch: row.state for row in status(site, for_directory(site)).rows}
    return tuple(rows[one] for one in OF_CUTLASS)


def states(site: Path) -> tuple[str, str]:
    rows = {row.patch: row.state for row in status(site, compiled(site, "P8", "P9")).rows}
    return rows["P8"], rows["P9"]


def probed(site: Path) -> str:
    (result,) = status(site, compiled(site, "P9"), probe=True).probes
    if result.outcome == "failed":
        assert "expects arch to be one of ['sm_120a']" in result.detail
    return result.outcome


def test_cu13_over_base(place: Path) -> None:
    site = site_packages(copy(cutlass("4.4.2"), place))
    assert of_release(site) == CUTLASS["4.4.2"]
    assert states(site) == ("applied", "pristine") and probed(site) == "failed"
    report = apply(site, compiled(site, "P8", "P9"))
    assert report.converged and [probe.outcome for probe in report.probes] == ["passed"]
    assert states(site) == ("applied", "applied") and probed(site) == "passed"
    assert apply(site, compiled(site, "P8", "P9")).changed == ()
    revert(site, compiled(site, "P8", "P9"))
    assert states(site) == ("applied", "pristine") and probed(site) == "failed"


def test_base_over_cu13(place: Path) -> None:
    """A forced reinstall of libs-base takes the patch and the compiler of CUDA 13 back."""
    environment = copy(cutlass("4.4.2"), place)
    site = site_packages(environment)
    apply(site, compiled(site, "P8", "P9"))
    pip(environment, "install", "--force-reinstall", "--no-deps", f"{BASE}==4.4.2")
    assert states(site) == ("pristine", "pristine") and probed(site) == "failed"
    with pytest.raises(HostError, match=rf"P8 is pristine .*pip install --force-reinstall --no-deps {CU13}==4\.4\.2"):
        apply(site, compiled(site, "P8", "P9"))
    report = apply(site, compiled(site, "P9"))  # libs-base's file is another one, and is patched as well
    assert report.converged and probed(site) == "passed"
    pip(environment, "install", "--force-reinstall", "--no-deps", f"{CU13}==4.4.2")
    assert states(site) == ("applied", "pristine")
    assert apply(site, compiled(site, "P8", "P9")).converged


def test_cu13_taken_away(place: Path) -> None:
    environment = copy(cutlass("4.4.2"), place)
    site = site_packages(environment)
    apply(site, compiled(site, "P8", "P9"))
    pip(environment, "uninstall", "--yes", CU13)
    assert states(site) == ("missing", "missing")
    with pytest.raises(HostError, match="P8 is missing"):
        apply(site, compiled(site, "P8", "P9"))


def test_452_needs_no_patch(place: Path) -> None:
    site = site_packages(copy(cutlass("4.5.2"), place))
    assert of_release(site) == CUTLASS["4.5.2"]
    assert states(site) == ("applied", "upstreamed") and probed(site) == "passed"
    assert apply(site, compiled(site, "P8", "P9")).changed == ()


def test_480_shares_no_path(place: Path) -> None:
    for name in ("base", "core", "cu13"):
        copy(sources(f"nvidia-cutlass-dsl-libs-{name}", "4.8.0"), place)
    assert of_release(place) == CUTLASS["4.8.0"]
    assert states(place) == ("upstreamed", "upstreamed")
    shutil.rmtree(place / "nvidia_cutlass_dsl_libs_core-4.8.0.dist-info")
    assert states(place)[1] == "not-applicable"
