"""What a verification says where nobody can answer: why, and what to do."""

import socket

import pytest

from sparkfleet.agent.proofs import proof
from sparkfleet.agent.proofs.serving import Engine, NotServing
from sparkfleet.agent.shapes import Expectation, Speed, UnitState

UNIT = "vllm-r.service"


def said(load: str, active: str) -> str:
    """Of a port where nobody listens."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        wanted = Expectation("r", UNIT, port, "m", 0, (), {}, "", (), (), Speed(0))
        state = UnitState(UNIT, load, active, "dead", "", "exit-code", 0, "", 0.0, "", False)
        with pytest.raises(NotServing) as error:
            proof.check(wanted, state, Engine(port))
    return str(error.value)


def test_a_unit_that_was_never_laid_down() -> None:
    assert said("not-found", "inactive") == f"{UNIT} is not on this host: it is not deployed. Deploy first"


def test_a_unit_that_does_not_run() -> None:
    assert f"refused. {UNIT} is failed (exit-code): see `journalctl -u {UNIT}`" in said("loaded", "failed")


def test_a_unit_that_runs_and_does_not_answer() -> None:
    assert said("loaded", "active").endswith("refused")
