"""Edits on bytes: exact, reversible, whatever the line ends."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sparkfleet.agent.patching import Edit
from sparkfleet.agent.patching.edits import EditError, backward, contains, forward

LINES = st.lists(st.text("abc =()", max_size=6), min_size=1, max_size=8)


@given(LINES, st.integers(0, 7), st.text("xyz\n", min_size=1, max_size=9), st.sampled_from(["\n", "\r\n"]))
def test_there_and_back(lines: list[str], at: int, new: str, end: str) -> None:
    """An anchor that is there once, and a text that is not: exactly that text, and every byte back."""
    lines[at % len(lines)] = "ANCHOR"
    data = end.join([*lines, ""]).encode()
    edit = Edit("ANCHOR\n", f"<{new}>\n")
    assume(end == "\n" or data.count(b"\n") > 1 or "\n" not in new)
    patched = forward(data, [edit])
    assert patched == data.replace(f"ANCHOR{end}".encode(), edit.new.replace("\n", end).encode())
    assert backward(patched, [edit]) == data


@given(st.binary(max_size=60))
def test_without_its_anchor_nothing_happens(data: bytes) -> None:
    assume(b"needle" not in data)
    with pytest.raises(EditError, match="found it 0 times"):
        forward(data, [Edit("needle", "x")])


def test_twice_is_as_bad_as_never() -> None:
    with pytest.raises(EditError, match="edit 2 of 2: expected `b = 1` and what follows once, found it 2 times"):
        forward(b"a\nb = 1\nb = 1\n", [Edit("a\n", "c\n"), Edit("b = 1\n", "b = 2\n")])


def test_signs_are_found_whatever_the_line_ends() -> None:
    assert contains(b"a\r\nb\r\n", "a\nb\n") and contains(b"a\nb\n", "a\nb\n") and not contains(b"a\nb\n", "b\na")


def test_bytes_that_are_not_text_are_kept() -> None:
    assert forward(b"\xff\x00ANCHOR\n", [Edit("ANCHOR\n", "é\n")]) == b"\xff\x00\xc3\xa9\n"
