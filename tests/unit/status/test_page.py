"""A page that can be mailed: whole in itself, everything escaped."""

from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from sparkfleet.agent.shapes import Finding
from sparkfleet.errors import UserError
from sparkfleet.status.fleet import fleet_status
from sparkfleet.status.page import page, write
from sparkfleet.status.shapes import Drift, FleetStatus, HostStatus, RecipeStatus
from tests.unit.status.conftest import NOW, Fleet

#: Elements and attributes by which a page fetches something or runs it.
FETCHING = {"script", "link", "img", "iframe", "object", "embed", "svg", "form", "base", "audio", "video", "source"}
HARMLESS = {"class", "data-name", "lang", "charset", "name", "content"}
VOID = {"meta"}


class Reader(HTMLParser):
    """Reads a page; complains of what is fetched or left open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.attributes: set[str] = set()
        self.elements: set[str] = set()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, Any]]) -> None:
        self.elements.add(tag)
        self.attributes |= {name for name, _ in attributes}
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    assert not reader.elements & FETCHING and reader.attributes <= HARMLESS
    return reader


def test_the_page(fleet: Fleet, snapshot: SnapshotAssertion) -> None:
    html = page(fleet_status(fleet.every_state(), NOW, "r1"))
    assert html == snapshot
    read(html)
    assert "http" not in html and "url(" not in html and "@import" not in html


@given(
    st.text(alphabet=st.sampled_from("<>&\"'/= abci")), st.sampled_from(["<script>alert(1)</script>", '"><img src=x>'])
)
def test_whatever_a_host_says_is_text(said: str, evil: str) -> None:
    said += evil
    recipe = RecipeStatus(said, said, said, said, 1.0, 1, 1, 0.5, 1.0, False, said, said, 1.0, said, said)
    finding = Finding("x", "warn", said, said)
    host = HostStatus("ready", said, said, (finding,), (recipe,), (Drift(said, said, said, said),))
    reader = read(page(FleetStatus(1, said, NOW, {said: host}, (finding,))))
    assert reader.text.count(evil) >= 10


def test_no_hosts_and_no_recipes() -> None:
    read(page(FleetStatus(1, "r", NOW)))
    assert "Recipes" not in read(page(FleetStatus(1, "r", NOW, {"a": HostStatus("not reached")}))).text


def test_it_is_written_whole_or_not_at_all(fleet: Fleet, tmp_path: Path) -> None:
    status = fleet_status({"a": fleet.view(replace(fleet.good))}, NOW, "r1")
    place = tmp_path / "reports"
    place.mkdir()
    write(status, place / "status.html")
    assert (place / "status.html").read_text(encoding="utf-8") == page(status)
    assert list(place.iterdir()) == [place / "status.html"]
    with pytest.raises(UserError, match=r"nowhere/status\.html: the report cannot be written \(No such file"):
        write(status, tmp_path / "nowhere" / "status.html")


def test_what_cannot_be_a_report_is_said(fleet: Fleet, tmp_path: Path) -> None:
    status = fleet_status({"a": fleet.view(fleet.good)}, NOW, "r1")
    where = tmp_path / "reports"
    where.mkdir()
    (where / "file").write_text("mine")
    for place in (Path("."), Path("/"), where, where / "file" / "status.html"):
        with pytest.raises(UserError, match="the report cannot be written"):
            write(status, place)
    assert [one.name for one in where.iterdir()] == ["file"]
