"""A deep verification finds everything that is not as it was sealed, and nothing else."""

import json
import os
import py_compile
from pathlib import Path

import pytest

from sparkfleet.agent import receipt
from sparkfleet.agent.errors import HostError
from sparkfleet.agent.paths import sha256
from sparkfleet.agent.releases import deep, overlaps, release
from sparkfleet.agent.shapes import Author, DeepOrder, Overlap
from tests.unit.patches.sites import install

AUTHOR = Author("test", "test")

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a release belongs to root")


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    """A sealed release: one patched file, two distributions that own a path."""
    path = tmp_path / "releases" / "vllm-9-abc"
    site = path / "lib/python3.12/site-packages"
    install(site, "libs-base", "1", {"shared/mma.py": "A = 1\n", "shared/base.py": "B = 1\n"})
    install(site, "vllm", "9", {"vllm/kernel.py": "X = 1\n", "vllm/_C.abi3.so": "compiled", "vllm/data.json": "{}"})
    install(site, "libs-cu13", "1", {"shared/mma.py": "A = 13\n"})
    fought = overlaps.verify(site, (Overlap("libs-cu13", "libs-base"),))
    kernel = site / "vllm/kernel.py"
    kernel.unlink()
    kernel.write_text("X = 2\n")
    code = site / "vllm/__pycache__/kernel.cpython-312.pyc"
    py_compile.compile(str(kernel), cfile=str(code), doraise=True)
    content = {
        "sealed": True,
        "sealed_at": 1.0,
        "distributions": release.distributions(site),
        "patched": {"vllm/kernel.py": sha256(kernel)},
        "overlaps": fought,
        "marks": {},
    }
    (path / release.RECEIPT).write_text(json.dumps(content))
    return path


def replace(site: Path, path: str, text: str) -> None:
    (site / path).unlink(missing_ok=True)
    (site / path).write_text(text)


def test_a_sealed_release_is_as_it_was(sealed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    deep.apply(DeepOrder(str(sealed.parent), (sealed.name,)), AUTHOR)
    assert "vllm-9-abc: all " in capsys.readouterr().out


def test_everything_that_differs_is_named_at_once(sealed: Path) -> None:
    site = release.site_packages(sealed)
    replace(site, "vllm/_C.abi3.so", "compilex")
    replace(site, "vllm/stranger.py", "")
    replace(site, "zz.pth", "import os")
    replace(site, "vllm/notes.txt", "nobody loads it")
    (site / "vllm/data.json").unlink()
    (site / "shared/base.py").chmod(0o666)
    assert deep.check(sealed)[0] == [
        "shared/base.py: others than root may write it",
        "vllm/_C.abi3.so: has other bytes",
        "vllm/data.json: is gone",
        "vllm/stranger.py: belongs to no distribution",
        "zz.pth: belongs to no distribution",
    ]
    with pytest.raises(HostError, match=r"not as they were sealed: 5 of 11\.\n    shared/base\.py: others"):
        deep.apply(DeepOrder(str(sealed.parent), (sealed.name,)), AUTHOR)


@pytest.mark.parametrize("path, text", [("vllm/kernel.py", "X = 1\n"), ("shared/mma.py", "A = 1\n")])
def test_what_its_distribution_shipped_is_not_what_was_sealed(sealed: Path, path: str, text: str) -> None:
    site = release.site_packages(sealed)
    replace(site, path, text)
    assert deep.check(sealed)[0] == [f"{path}: has other bytes"]


def test_byte_code_of_another_source_is_told(sealed: Path) -> None:
    site = release.site_packages(sealed)
    os.utime(site / "vllm/kernel.py", (1, 1))
    assert deep.check(sealed)[0] == ["vllm/kernel.py: its byte code is of another source"]


def test_a_release_that_is_not_there_is_told(sealed: Path) -> None:
    with pytest.raises(HostError, match=r"vllm-10: it is not here\. Deploy first\."):
        deep.apply(DeepOrder(str(sealed.parent), (sealed.name, "vllm-10")), AUTHOR)


def test_a_release_that_an_installer_changed_is_told_with_its_files(sealed: Path) -> None:
    site = release.site_packages(sealed)
    install(site, "libs-base", "1", {"shared/mma.py": "A = 1\n", "shared/base.py": "B = 1\n"})
    with pytest.raises(HostError) as caught:
        deep.apply(DeepOrder(str(sealed.parent), (sealed.name,)), AUTHOR)
    assert "libs_base-1.dist-info was changed after it was built.\n    shared/mma.py: has other bytes" in str(
        caught.value
    )


def test_what_was_found_is_remembered_until_it_is_not_there_any_more(sealed: Path) -> None:
    site, order = release.site_packages(sealed), DeepOrder(str(sealed.parent), (sealed.name,))
    good = (site / "vllm/_C.abi3.so").read_text()
    replace(site, "vllm/_C.abi3.so", "compilex")
    assert release.state(sealed).sealed, "nothing else tells"
    with pytest.raises(HostError, match=r"Deploy: it is built again, beside the one that runs\."):
        deep.apply(order, AUTHOR)
    found = release.state(sealed)
    assert not found.sealed and found.problem == "files that are not as they were sealed: 1 of 11"
    replace(site, "vllm/_C.abi3.so", good)
    deep.apply(order, AUTHOR)
    assert release.state(sealed).sealed


def test_a_file_that_its_wheels_record_is_wrong_about_is_told_by_the_releases_receipt(sealed: Path) -> None:
    site = release.site_packages(sealed)
    replace(site, "vllm/_C.abi3.so", "as its wheel holds it")
    (site / "vllm/data.json").unlink()
    odd = {"vllm/_C.abi3.so": sha256(site / "vllm/_C.abi3.so"), "vllm/data.json": ""}
    release.remember(sealed, release.read(sealed) | {"misrecorded": odd})
    assert deep.check(sealed)[0] == []
    replace(site, "vllm/_C.abi3.so", "compiled")
    assert deep.check(sealed)[0] == ["vllm/_C.abi3.so: has other bytes"]


def test_a_release_that_a_unit_is_started_from_is_read_though_nobody_named_it(
    sealed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace(release.site_packages(sealed), "vllm/_C.abi3.so", "compilex")
    order = DeepOrder(str(sealed.parent), ())
    monkeypatch.setattr(receipt, "PATH", sealed.parent.parent / "receipt.json")
    deep.apply(order, AUTHOR)  # of no use to anybody
    receipt.record(AUTHOR, units={"vllm-a.service": {"release": str(sealed), "digest": "d"}})
    with pytest.raises(HostError, match="not as they were sealed: 1 of 11"):
        deep.apply(order, AUTHOR)
