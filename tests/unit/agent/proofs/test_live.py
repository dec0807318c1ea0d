"""A process is compared with what should have been started, and a journal with its rules."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from sparkfleet.agent.proofs import live, proof
from sparkfleet.agent.proofs.canary import Answer
from sparkfleet.agent.shapes import Expectation, JournalRule, Speed, UnitState

COMMAND = (sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)", "--port=1", "--a=b c")


def expectation(command: tuple[str, ...] = COMMAND, **environment: str) -> Expectation:
    return Expectation("r", "vllm-r.service", 1, "m", 0, command, environment, "", (), (), Speed(0))


def state(pid: int, active: str = "active") -> UnitState:
    return UnitState("vllm-r.service", "loaded", active, "running", "enabled", "success", pid, "i", 1.0, "d", False)


@pytest.fixture
def pid() -> Iterator[int]:
    process = subprocess.Popen(COMMAND, env={"A": "1", "PATH": os.environ["PATH"]}, stdout=subprocess.PIPE)
    assert process.stdout
    process.stdout.readline()  # its command line is its own from here on
    yield process.pid
    process.kill()
    process.wait()
    process.stdout.close()


def test_what_was_started_as_it_should_be_is_fine(pid: int) -> None:
    assert live.complaint(expectation(A="1"), state(pid)) == ""
    # the unit names a script, whose first line names the interpreter
    assert live.complaint(expectation(COMMAND[1:], A="1"), state(pid)) == ""


def test_other_arguments_are_seen_and_shown(pid: int) -> None:
    said = live.complaint(expectation((*COMMAND[:-2], "--port=2", "--a=b c")), state(pid))
    assert "missing --port=2" in said and "found --port=1" in said
    assert "missing --more" in live.complaint(expectation((*COMMAND, "--more")), state(pid))
    assert "order differs" in live.complaint(expectation((*COMMAND[:-2], "--a=b c", "--port=1")), state(pid))


def test_secrets_among_arguments_are_not_shown() -> None:
    argv = (*COMMAND, "--api-key=not-to-be-shown", "--hf-token", "nor-this")
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        said = live.complaint(expectation(), state(process.pid))
        process.kill()
    assert "found --api-key=*** --hf-token ***" in said


def test_another_environment_is_seen_and_shown(pid: int) -> None:
    assert "started with A='1', the unit says '2'" in live.complaint(expectation(A="2"), state(pid))
    assert "started without B, the unit says '3'" in live.complaint(expectation(B="3"), state(pid))


def test_a_process_that_is_gone_serves_nothing() -> None:
    assert "nothing serves" in live.complaint(expectation(), state(0, "failed"))
    assert "was not started with" in live.complaint(expectation(), state(2**22 + 1))


WANTED = JournalRule(r"Using 'MARLIN' Mxfp4", True, "Wrong kernel.")
UNWANTED = JournalRule(r"Estimated CUDA graph memory: -", False, "Profiler.")


def test_journal_rules() -> None:
    good = ["INFO Using 'MARLIN' Mxfp4 MoE backend.", "Estimated CUDA graph memory: 0.5 GiB"]
    assert live.broken((WANTED, UNWANTED), good) == ""
    assert "lacks a line with `Using 'MARLIN' Mxfp4`. Wrong kernel." in live.broken((WANTED,), ["x"])
    bad = [*good, "INFO Estimated CUDA graph memory: -35.63 GiB"]
    assert "`INFO Estimated CUDA graph memory: -35.63 GiB`. Profiler." in live.broken((WANTED, UNWANTED), bad)


STARTED = "sparkfleet guard: all is as it was deployed (90 ms)"


def test_a_journal_that_was_cleared_accuses_nobody() -> None:
    rules, bad = (WANTED, UNWANTED), "INFO Estimated CUDA graph memory: -35.63 GiB"
    assert "lacks a line" in live.judge_journal(rules, [STARTED], proven=True)[0]
    assert live.judge_journal(rules, [STARTED, "Using 'MARLIN' Mxfp4"], proven=False) == ("", "")
    for left in ([], ["INFO a request"]):
        wrong, note = live.judge_journal(rules, left, proven=True)
        assert not wrong and "not judged again: the journal does not have the beginning of this start" in note
        assert "it cannot be told" in live.judge_journal(rules, left, proven=False)[0]
        assert live.judge_journal((), left, proven=False) == ("", "")
        assert not live.judge_journal((UNWANTED,), left, proven=False)[0]
        assert "Profiler." in live.judge_journal(rules, [*left, bad], proven=True)[0]


SPEED = Speed(200, True, 45.0, 80.0, ("driver", "eager mode"))


def test_speed_below_the_floor_lists_the_causes_in_order() -> None:
    reason, _ = proof.judge_speed(SPEED, 26.0, is_spark=True)
    assert "decodes 26.0 tok/s, expected at least 45" in reason
    assert "(1) driver; (2) eager mode" in reason


def test_speed_at_the_floor_passes_and_near_the_ceiling_is_said() -> None:
    assert proof.judge_speed(SPEED, 45.0, is_spark=True) == ("", "")
    assert "90% of what memory bandwidth allows (80 tok/s)" in proof.judge_speed(SPEED, 72.0, is_spark=True)[1]


def test_other_machines_are_not_judged_by_a_sparks_figures() -> None:
    reason, note = proof.judge_speed(SPEED, 1.0, is_spark=False)
    assert reason == "" and "no Spark" in note
    assert proof.judge_speed(Speed(200, False, 45.0), 1.0, is_spark=False)[0]


def test_a_stream_that_came_in_one_piece_does_not_count_as_fast() -> None:
    assert proof._rate(Answer("x", tokens=201, first=0.1, seconds=2.0)) == 100.0
    assert proof._rate(Answer("x", tokens=200, first=1.99, seconds=0.01)) == 100.0
    assert proof._rate(Answer("x", tokens=1, first=0.1, seconds=0.0)) == 0.0


def test_of_a_long_line_what_matched_is_shown() -> None:
    long = "a" * 300 + " enforce_eager=True " + "b" * 300
    said = live.broken((JournalRule("enforce_eager=True", False, "Slow."),), [long])
    assert "enforce_eager=True" in said and len(said) < 300
