"""What served is kept, root's alone, and found again; what cannot be understood is nothing to go back to."""

import json
from pathlib import Path

import pytest

from sparkfleet.agent import receipt
from sparkfleet.agent.errors import HostError
from sparkfleet.agent.services import generations
from sparkfleet.agent.shapes import Author, TextFile, Unit

AUTHOR = Author("r", "ann")


def unit(digest: str) -> Unit:
    file = TextFile("/etc/sparkfleet/a.env", f"SECRET={digest}\n", 0o600)
    return Unit("a", "vllm-a.service", f"/releases/vllm-{digest}", "model", (file,), digest, 60)


def lay_down(digest: str) -> None:
    """As the service role does it."""
    one = unit(digest)
    generations.keep(one)
    receipt.record(AUTHOR, units={one.name: {"digest": digest, "release": one.release, "files": []}})


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(receipt, "PATH", tmp_path / "receipt.json")
    monkeypatch.setattr(generations, "PATH", tmp_path / "generations")
    return tmp_path


def test_a_generation_comes_back_whole_and_only_root_can_read_it(home: Path) -> None:
    generations.keep(unit("d1"))
    assert generations.load("vllm-a.service", "d1") == unit("d1")
    (path,) = (home / "generations").glob("*/*")
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700


def test_served_sets_are_remembered_newest_last_each_once(home: Path) -> None:
    for at, digest in enumerate(["d1", "d2", "d1"]):
        lay_down(digest)
        generations.remember_served(AUTHOR, (), float(at))
    sets = generations.served(receipt.read())
    assert [(one.at, one.units["vllm-a.service"]) for one in sets] == [(1.0, "d2"), (2.0, "d1")]
    assert sets[0].releases == {"vllm-a.service": "vllm-d2"}
    assert "SECRET" not in (home / "receipt.json").read_text()


def test_a_set_that_was_gone_back_to_is_one_until_something_else_serves() -> None:
    def newest() -> dict[str, str] | None:
        return generations.served(receipt.read())[-1].left

    lay_down("d1")
    generations.remember_served(AUTHOR, (), 1.0, {"vllm-a.service": "d3"})
    assert newest() == {"vllm-a.service": "d3"}
    generations.remember_served(AUTHOR, (), 2.0)  # asked again
    assert newest() == {"vllm-a.service": "d3"}
    for digest in ("d2", "d1"):
        lay_down(digest)
        generations.remember_served(AUTHOR, (), 3.0)
        assert newest() is None


def test_only_so_many_are_remembered() -> None:
    for number in range(generations.MOST + 3):
        lay_down(f"d{number}")
        generations.remember_served(AUTHOR, (), float(number))
    assert len(generations.served(receipt.read())) == generations.MOST


@pytest.mark.parametrize("text", ["", "{", "null", "[]", '{"recipe": 1}', "\x00"])
def test_what_cannot_be_understood_is_not_gone_back_to(home: Path, text: str) -> None:
    generations.keep(unit("d1"))
    (path,) = (home / "generations").glob("*/*")
    path.write_text(text)
    with pytest.raises(HostError, match="is not kept any more"):
        generations.load("vllm-a.service", "d1")


@pytest.mark.parametrize("sets", [None, 3, {}, [None], [{"at": "x"}], [{"at": 1.0, "units": {}}]])
def test_served_sets_of_an_odd_receipt_are_none(sets: object) -> None:
    receipt.PATH.write_text(json.dumps({"schema": 1, "served": {"sets": sets}}))
    assert generations.served(receipt.read()) == ()


def test_generations_that_nothing_needs_are_forgotten(home: Path) -> None:
    generations.keep(unit("d1"))
    generations.keep(unit("d2"))
    assert generations.forget({("vllm-a.service", "d2")}) == 1
    assert [path.stem for path in (home / "generations").glob("*/*")] == ["d2"]
    assert generations.forget(set()) == 1 and list((home / "generations").iterdir()) == []
