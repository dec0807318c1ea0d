"""Shapes survive the way to a host and back, and nothing else gets through."""

import json
import unicodedata
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles._lib.facts import author
from sparkfleet.agent.facts.shapes import Disk, Machine, System
from sparkfleet.agent.shapes import Observed, Question, ReleaseState, Verified
from sparkfleet.agent.wire import WireError, decode, encode, recall, tell
from sparkfleet.desired import question
from tests.unit.builders import converged, machine, wanted

FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(st.builds(Verified, tokens_per_second=FINITE, at=FINITE))
def test_there_and_back(value: Verified) -> None:
    text = encode(value)
    assert text.isascii() and "\n" not in text
    assert decode(Verified, text) == value


@given(st.lists(st.builds(Disk)), st.none() | st.text(), st.dictionaries(st.text(), st.text()))
def test_nested_optional_and_mapped(disks: list[Disk], ota: str | None, pythons: dict[str, str]) -> None:
    value = machine(disks=tuple(disks), release__ota=ota, system__pythons=pythons)
    assert decode(Machine, encode(value)) == value


def test_the_whole_state_and_question(lock: str) -> None:
    desired = wanted(lock)
    assert decode(Observed, encode(converged(desired))) == converged(desired)
    asked = question(desired, 1.0, author(), adopt=False)
    assert decode(Question, encode(asked)) == asked


@pytest.mark.parametrize(
    "wrong",
    [
        {"passed": "yes"},
        {"at": None},
        {"recipe": 3},
        {"surplus": 1},
        {"tokens_per_second": True},
        {"at": float("nan")},
        {"at": float("inf")},
        {"at": 10**400},
    ],
)
def test_another_shape_is_refused_by_name(wrong: dict[str, Any]) -> None:
    good = Verified("r", "i", True, "", "q", "a", 1.0, 2.0)
    with pytest.raises(WireError, match=next(iter(wrong))):
        decode(Verified, json.dumps(asdict(good) | wrong))


@given(st.builds(Verified, answer=st.text(st.characters()), tokens_per_second=FINITE, at=FINITE))
def test_what_a_host_says_can_be_shown_and_written(value: Verified) -> None:
    seen = decode(Verified, tell(value))
    assert all(char in "\n\t" or not unicodedata.category(char).startswith(("Cc", "Cs")) for char in seen.answer)
    assert len(seen.answer) == len(value.answer)
    seen.answer.encode()


def test_only_what_cannot_be_shown_is_replaced() -> None:
    state = machine(disks=(), system__pythons={"a\udcff": "caf\u00e9 \x1b[31m\u202e\n"})
    assert decode(Machine, tell(state)).system.pythons == {"a\ufffd": "caf\u00e9 \ufffd[31m\ufffd\n"}


@given(st.text())
def test_noise_is_refused_and_never_crashes(text: str) -> None:
    with pytest.raises(WireError):
        decode(Observed, text)


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(WireError):
        decode(Observed, "[" * 200_000)


def test_a_missing_field_is_refused() -> None:
    content = asdict(machine().system)
    del content["bios"]
    with pytest.raises(WireError, match="bios"):
        decode(System, json.dumps(content))


def test_what_another_version_wrote_down_is_recalled_as_far_as_it_goes() -> None:
    written = {"name": "r", "sealed": True, "problem": "", "of a newer one": {"x": 1}}
    assert recall(ReleaseState, written) == ReleaseState("r", True)
    with pytest.raises(WireError, match="sealed"):
        recall(ReleaseState, {"name": "r"})
    with pytest.raises(WireError, match="expected bool"):
        recall(ReleaseState, {"name": "r", "sealed": "yes"})
