"""In which order units change, and what stands in whose way."""

from pathlib import Path

import pytest

from sparkfleet.agent import receipt
from sparkfleet.agent.errors import HostError
from sparkfleet.agent.services import generations, switch
from sparkfleet.agent.services.units import in_the_way
from sparkfleet.agent.shapes import Author, Served, TextFile, Unit


def unit(name: str, port: int, standby: bool = False) -> Unit:
    return Unit(name, name, "/releases/r", "model", (), "digest", 60, standby, port)


@pytest.mark.parametrize(
    ("wanted", "running", "stopped"),
    [
        ([unit("a", 8000), unit("b", 8001)], {"a": 8000, "b": 8001}, ()),
        ([unit("b", 8000), unit("a", 8001)], {"a": 8000}, ("a",)),
        ([unit("a", 8001), unit("b", 8000)], {"a": 8000, "b": 8001}, ("a", "b")),
        ([unit("a", 8000), unit("b", 8000, standby=True)], {"a": 8000}, ()),
        ([unit("a", 8001, standby=True), unit("b", 8000)], {"a": 8000}, ("a",)),
        ([unit("a", 8001), unit("b", 8000)], {"a": 0}, ()),
        ([unit("a", 0), unit("b", 0)], {"a": 0, "b": 0}, ()),
    ],
    ids=["restarts", "hands on", "exchange", "a standby shares", "now waits", "not known", "of an older version"],
)
def test_who_listens_where_another_is_to_have_its_port_is_stopped_first(
    wanted: list[Unit], running: dict[str, int], stopped: tuple[str, ...]
) -> None:
    assert in_the_way(tuple(wanted), running) == stopped


def test_going_back_overwrites_no_file_that_is_not_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipt, "PATH", tmp_path / "receipt.json")
    monkeypatch.setattr(generations, "PATH", tmp_path / "generations")
    theirs = tmp_path / "vllm-a.service"
    theirs.write_text("[Service]\n")
    file = TextFile(str(theirs), "# Managed by sparkfleet\n")
    generations.keep(Unit("a", "vllm-a.service", str(tmp_path / "r"), "model", (file,), "d1", 60))
    with pytest.raises(HostError, match="a file that is not ours is in the way"):
        switch.restore(Served(1.0, {"vllm-a.service": "d1"}, {}, ()), Author("r", "ann"))
    assert theirs.read_text() == "[Service]\n"
