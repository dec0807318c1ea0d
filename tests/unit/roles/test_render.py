"""What lands on a host: readable, quoted as systemd reads it, the same for the same plan."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from roles._lib.render import environment_value, systemd_word, units
from sparkfleet.agent.units import DIGEST_VARIABLE, MARK
from tests.unit.builders import plan

TEXT = st.text(st.characters(blacklist_characters="\n\r\0", blacklist_categories=["Cs"]))


def test_the_files_of_a_unit(lock: str, snapshot: SnapshotAssertion) -> None:
    (unit,) = units(plan(lock))
    assert {file.path: file.content for file in unit.files} == snapshot


def test_every_file_carries_our_mark_and_the_environment_is_private(lock: str) -> None:
    (unit,) = units(plan(lock))
    assert all(file.content.startswith(MARK) for file in unit.files)
    assert {file.path: file.mode for file in unit.files}["/etc/sparkfleet/tiny-llama.env"] == 0o600


def test_the_digest_is_in_the_environment_and_follows_everything(lock: str) -> None:
    (one,), (other,) = units(plan(lock)), units(plan(lock, python="3.11"))
    assert f"{DIGEST_VARIABLE}={one.digest}\n" in one.files[1].content
    assert one.digest != other.digest
    assert one == units(plan(lock))[0]


@given(st.text(st.characters(blacklist_characters="\n\r\0$`", blacklist_categories=["Cs"])))
def test_an_environment_value_is_read_back(text: str) -> None:
    # but for variables, systemd reads these as a shell does: systemd.exec(5), EnvironmentFile=
    assert shlex.split(environment_value(text)) == [text]


@pytest.mark.parametrize("text", ["$HOME", "`id`", "a$"])
def test_an_environment_value_expands_nothing(text: str) -> None:
    assert environment_value(text) == '"' + text.replace("$", "\\$").replace("`", "\\`") + '"'


@given(TEXT)
def test_a_word_stays_one_word_and_expands_nothing(text: str) -> None:
    word = systemd_word(text)
    quoted = word.startswith('"')
    assert quoted or not set(word) & set(" \t%$\\'\";")
    assert word.count("%") == 2 * text.count("%") and word.count("$") == 2 * text.count("$")


@pytest.mark.parametrize("text", ["a\nExecStart=/bin/evil", "a\rb", "a\0b"])
def test_a_line_break_is_refused(text: str) -> None:
    for quote in (systemd_word, environment_value):
        with pytest.raises(ValueError, match="line break"):
            quote(text)
