"""A release in its place, beside it, changed or cut off: what may be used is what its receipt says, or nothing."""

import json
import sys
from pathlib import Path

import pytest

from sparkfleet.agent import patching, receipt
from sparkfleet.agent.patching.shapes import PatchSet
from sparkfleet.agent.paths import sha256
from sparkfleet.agent.releases import release, seal
from sparkfleet.agent.shapes import Assertions, Author

AUTHOR = Author("r", "ann")


def lay_down(path: Path, text: str = "x = 1\n") -> None:
    """What a build leaves: one distribution, one module and a receipt that is not sealed."""
    site = path / "lib/python3.12/site-packages"
    (site / "vllm-1.dist-info").mkdir(parents=True)
    (site / "vllm-1.dist-info/RECORD").write_text("vllm.py,,\n")
    (site / "vllm.py").write_text(text)
    (path / "bin").mkdir()
    (path / "bin/python").symlink_to(sys.executable)
    content = {
        "name": path.name,
        "engine": "vllm",
        "digest": "d",
        "sealed": False,
        "distributions": release.distributions(site),
        "patched": {},
        "size": 10,
    }
    (path / "release.json").write_text(json.dumps(content))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a release belongs; one that is built waits beside it."""
    monkeypatch.setattr(receipt, "PATH", tmp_path / "receipt.json")
    path = tmp_path / "releases" / "vllm-d"
    path.parent.mkdir()
    lay_down(release.beside(path))
    return path


def do_seal(place: Path) -> None:
    seal.apply(seal.PatchOrder(str(place), PatchSet(1, "none", {}, ()), Assertions()), AUTHOR)


def test_built_beside_it_waits_and_sealed_it_is_in_its_place(place: Path) -> None:
    found = release.state(place)
    assert (found.sealed, found.waiting, found.problem) == (False, True, "")
    do_seal(place)
    found = release.state(place)
    assert (found.sealed, found.waiting, found.size) == (True, False, 10)
    assert [path.name for path in place.parent.iterdir()] == [place.name]


def test_the_new_one_takes_the_place_of_a_damaged_one(place: Path) -> None:
    do_seal(place)
    (place / "lib/python3.12/site-packages/vllm-1.dist-info/RECORD").write_text("other\n")
    assert release.state(place).problem == "vllm-1.dist-info was changed after it was built"
    lay_down(release.beside(place), "x = 2\n")
    assert release.state(place).waiting
    assert (place / "lib/python3.12/site-packages/vllm.py").read_text() == "x = 1\n", "the one in use stays until then"
    do_seal(place)
    assert release.state(place).sealed
    assert (place / "lib/python3.12/site-packages/vllm.py").read_text() == "x = 2\n"
    assert [path.name for path in place.parent.iterdir()] == [place.name]


@pytest.mark.parametrize("stage", ["patching.apply", "remember", "take_place", "receipt.record"])
@pytest.mark.parametrize("damaged", [False, True])
def test_cut_off_at_any_stage_the_next_run_finishes(
    place: Path, monkeypatch: pytest.MonkeyPatch, stage: str, damaged: bool
) -> None:
    if damaged:
        do_seal(place)
        (place / "lib/python3.12/site-packages/vllm-1.dist-info/RECORD").write_text("other\n")
        lay_down(release.beside(place))

    def cut(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    room, _, name = stage.rpartition(".")
    home = {"patching": patching, "receipt": receipt, "": seal}[room]
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(home, name, cut)
        do_seal(place)
    found = release.state(place)
    assert found.sealed is (stage == "receipt.record")
    assert found.sealed or found.waiting, "nothing has to be built again"
    do_seal(place)
    assert release.state(place).sealed and not release.beside(place).exists()


def test_cut_off_after_the_exchange_what_was_replaced_is_never_taken_for_a_release(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    do_seal(place)
    (place / "lib/python3.12/site-packages/vllm-1.dist-info/RECORD").write_text("other\n")
    lay_down(release.beside(place), "x = 2\n")
    with monkeypatch.context() as patch:
        patch.setattr(release, "clear", lambda _: None)
        do_seal(place)
    (found,) = release.look(str(place.parent))
    assert (found.sealed, found.waiting) == (True, False)


def test_a_file_system_that_cannot_exchange(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    do_seal(place)
    lay_down(release.beside(place), "x = 2\n")
    monkeypatch.setattr(release, "_RENAME_EXCHANGE", 1 << 30)  # the kernel knows no such flag: EINVAL
    release.take_place(place)
    assert (place / "lib/python3.12/site-packages/vllm.py").read_text() == "x = 2\n"
    assert [path.name for path in place.parent.iterdir()] == [place.name]


def test_without_a_receipt_the_build_did_not_end(place: Path) -> None:
    (release.beside(place) / "release.json").unlink()
    assert release.state(place).problem == "its build did not end"


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"sealed": "yes"}', '{"distributions": 3}', "{}"])
def test_a_receipt_that_cannot_be_understood_is_a_problem(place: Path, text: str) -> None:
    do_seal(place)
    (place / "release.json").write_text(text)
    assert "receipt" in release.state(place).problem


def test_a_patched_file_is_compared_by_its_bytes(place: Path) -> None:
    do_seal(place)
    module = place / "lib/python3.12/site-packages/vllm.py"
    content = json.loads((place / "release.json").read_text())
    (place / "release.json").write_text(json.dumps(content | {"patched": {"vllm.py": sha256(module)}}))
    assert release.state(place).sealed
    module.write_text("x = 3\n")
    assert "the patched file vllm.py was changed" in release.state(place).problem
