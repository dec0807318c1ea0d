"""Locks are read strictly, and a wheelhouse is checked to the last byte, everything wrong named at once."""

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkfleet.agent.errors import HostError
from sparkfleet.agent.names import normal
from sparkfleet.agent.releases.lock_file import Pin, find_wheels, parse

A, B = "a" * 64, "b" * 64


def test_continued_lines_comments_and_markers() -> None:
    lock = f"""\
# made by hand
Torch==2.13.0+cpu \\
    --hash=sha256:{A} \\
    --hash=sha256:{B}
    # via vllm
importlib_metadata==8.0 ; python_version < "3.13" --hash=sha256:{A}
"""
    assert parse(lock) == (
        Pin("torch", "2.13.0+cpu", frozenset({A, B})),
        Pin("importlib-metadata", "8.0", frozenset({A})),
    )


@pytest.mark.parametrize(
    "line",
    ["torch>=2 --hash=sha256:" + A, "torch==2.13.0", "torch==2.13.0 --hash=md5:abc", "-r other.txt", "https://x/y.whl"],
)
def test_a_line_that_pins_no_bytes_is_refused(line: str) -> None:
    with pytest.raises(HostError, match="lock: "):
        parse(line)


@given(st.text())
def test_noise_is_refused_or_empty_and_never_crashes(text: str) -> None:
    try:
        pins = parse(text)
    except HostError:
        return
    assert all(pin.hashes for pin in pins)


@pytest.mark.parametrize("name", ["Typing_Extensions", "typing.extensions", "TYPING--extensions"])
def test_names_are_compared_as_packaging_does(name: str) -> None:
    assert normal(name) == "typing-extensions"


def wheel(house: Path, name: str, content: bytes) -> Pin:
    (house / f"{name}-1.0-py3-none-any.whl").write_bytes(content)
    return Pin(normal(name), "1.0", frozenset({hashlib.sha256(content).hexdigest()}))


def test_good_wheels_are_found(tmp_path: Path) -> None:
    pin = wheel(tmp_path, "good_one", b"x")
    assert find_wheels((pin,), tmp_path) == {"good-one": tmp_path / "good_one-1.0-py3-none-any.whl"}


def test_everything_wrong_is_named_at_once(tmp_path: Path) -> None:
    good = wheel(tmp_path, "good", b"x")
    cut = wheel(tmp_path, "cut", b"whole")
    (tmp_path / "cut-1.0-py3-none-any.whl").write_bytes(b"who")
    gone, other = Pin("gone", "1.0", frozenset({A})), Pin("good", "2.0", frozenset({A}))
    with pytest.raises(HostError) as error:
        find_wheels((good, cut, gone, other), tmp_path)
    said = str(error.value)
    assert "cut-1.0-py3-none-any.whl: the bytes are not those of the lock" in said
    assert "missing: gone==1.0, good==2.0" in said


def test_a_wheelhouse_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="is not there"):
        find_wheels((), tmp_path / "none")
