"""What a healthy model may say, and what it does not; every symptom is named."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkfleet.agent.proofs.canary import Answer, complaint, garbled
from sparkfleet.agent.shapes import Prompt

ASK = Prompt("arithmetic", "What is 12*17?", "", r"\b204\b", 32, False)
TALK = Prompt("long", "Tell me.", "", "", 1000, True)

TABLE = "| a | b | c | d | e | f | g | h | i |\n" + "|---" * 9 + "|\n" + "| 1 " * 9 + "|\n"
COUNT = " ".join(map(str, range(1, 201)))


@pytest.mark.parametrize(
    "text",
    ["204", "12*17 = 204.", "The answer is 204!!!", "204\n" + "-" * 80, "204, or 203.99999999999999999999999999"],
)
def test_right_answers_pass(text: str) -> None:
    assert complaint(Answer(text, "", "stop", 5), ASK) == ""


@pytest.mark.parametrize(
    "text", ["No.", "!!!", "Ha ha ha ha!", TABLE, COUNT, "=" * 70 + "\nTitle\n" + "=" * 70, "bye bye " * 3]
)
def test_odd_but_sane_texts_pass(text: str) -> None:
    assert complaint(Answer(text, "", "length", 5), TALK) == ""


def test_our_own_prose_passes() -> None:
    for page in Path(__file__).resolve().parents[3].glob("*.md"):
        assert garbled(page.read_text()) == ""


def test_a_wrong_answer_shows_what_was_expected_and_found() -> None:
    said = complaint(Answer("It is 205.", "", "stop", 5), ASK)
    assert r"`\b204\b`" in said and "'It is 205.'" in said


@pytest.mark.parametrize("text", ["!!!!", "!" * 200, " !!!!!!!! ", "204 " + "!" * 40, "! ! ! ! ! ! ! ! !"])
def test_token_zero_is_named_with_what_it_means_on_sm121(text: str) -> None:
    said = complaint(Answer(text, "", "length", 32), ASK)
    assert "token 0" in said and "SM121" in said


@pytest.mark.parametrize("text", ["aaaaaaaa", "the the the the the the the the the", "204 and 9 9 9 9 9 9 9 9 9"])
def test_another_token_repeated_is_a_failure_too(text: str) -> None:
    assert "one token repeated" in complaint(Answer(text, "", "length", 32), ASK)


@pytest.mark.parametrize(
    "text",
    [
        "204. " + "We need to answer the user. " * 12,
        "so it is, " * 15,
        "ab" * 50,
        "我们需要回答" * 20,
        COUNT + " and on and on and on" + " and on" * 20,
    ],
)
def test_a_loop_is_a_failure_and_shown(text: str) -> None:
    assert "is a loop" in complaint(Answer(text, "", "length", 300), TALK)
    assert "is a loop" in complaint(Answer("204", text, "length", 300), ASK), "in the reasoning too"


@given(st.lists(st.sampled_from(["alpha", "beta", "gamma", "delta"]), min_size=6, max_size=12), st.integers(8, 20))
def test_any_phrase_said_often_enough_is_garbled(phrase: list[str], times: int) -> None:
    assert garbled(" ".join(phrase * times))


@given(st.lists(st.integers(), unique=True, max_size=300))
def test_what_never_repeats_is_never_garbled(numbers: list[int]) -> None:
    assert garbled(" ".join(f"w{n}" for n in numbers)) == ""


@given(st.text())
def test_any_text_is_judged(text: str) -> None:
    assert isinstance(complaint(Answer(text, text, "stop", 1), TALK), str)


def test_all_text_in_reasoning_names_the_parser() -> None:
    said = complaint(Answer("", "12*17 is 204", "stop", 9), ASK, "openai_gptoss")
    assert "`content` is empty" in said and "openai_gptoss" in said and "204" in said


def test_still_thinking_at_the_limit_is_told_apart() -> None:
    said = complaint(Answer("", "let me see", "length", 32), ASK, "qwen3")
    assert "32 was the limit" in said and "larger max_tokens" in said
    assert complaint(Answer("", "let me see", "length", 1000), TALK) == "", "a long answer may be all thought"


@pytest.mark.parametrize("content", ["", "  \n"])
def test_nothing_at_all_is_a_failure(content: str) -> None:
    assert "the answer is empty" in complaint(Answer(content, "", "stop", 0), ASK)


@pytest.mark.parametrize("finish", ["", "abort", "error"])
def test_how_it_ended_must_be_sane(finish: str) -> None:
    assert "finish reason" in complaint(Answer("204", "", finish, 3), ASK)
