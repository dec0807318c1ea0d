"""A real process with a small API, as a unit's engine: answering, halted, silent, started by hand."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from sparkfleet.agent.facts.shapes import PortOwner
from sparkfleet.agent.proofs import moment, serving
from sparkfleet.agent.shapes import Expectation, Live, Speed, UnitState

ENGINE = """
import http.server, json, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        metrics = self.path == "/metrics"
        text = "vllm:num_requests_running 2.0\\nvllm:num_requests_waiting 1.0\\nvllm:kv_cache_usage_perc 0.5\\n"
        body = text if metrics else json.dumps({"data": [{"id": "m", "max_model_len": 9}]})
        bad = metrics and "--no-metrics" in sys.argv or not metrics and self.headers["Authorization"] != "Bearer k"
        self.send_response(404 if bad else 200)
        self.end_headers()
        self.wfile.write(body.encode())
    def log_message(self, *_): pass
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> Iterator[tuple[UnitState, Expectation]]:
    command = (sys.executable, "-c", ENGINE, *getattr(request, "param", ()))
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env={"VLLM_API_KEY": "k", "PATH": os.environ["PATH"]})
    assert process.stdout
    port = int(process.stdout.readline())
    state = UnitState(
        "vllm-r.service", "loaded", "active", "running", "enabled", "success", process.pid, "i", 1, "d", False
    )
    yield state, Expectation("r", "vllm-r.service", port, "m", 9, command, {"VLLM_API_KEY": "k"}, "", (), (), Speed(0))
    process.kill()
    process.wait()
    process.stdout.close()


def test_an_engine_at_work(engine: tuple[UnitState, Expectation]) -> None:
    state, expectation = engine
    assert moment.look(expectation, state, ()) == Live("r", "", "", 2, 1, 0.5)


@pytest.mark.parametrize("engine", [("--no-metrics",)], indirect=True)
def test_without_metrics_it_answers_and_its_work_is_unknown(engine: tuple[UnitState, Expectation]) -> None:
    state, expectation = engine
    assert moment.look(expectation, state, ()) == Live("r")


def test_a_halted_engine_does_not_serve(engine: tuple[UnitState, Expectation]) -> None:
    state, expectation = engine
    os.kill(state.pid, signal.SIGSTOP)
    while "T" not in moment._process_state(state.pid):
        time.sleep(0.01)
    seen = moment.look(expectation, state, ())
    assert seen == Live("r", f"process {state.pid} was halted (SIGSTOP)")


def test_an_engine_that_hangs_does_not_serve(
    engine: tuple[UnitState, Expectation], monkeypatch: pytest.MonkeyPatch
) -> None:
    state, expectation = engine
    monkeypatch.setattr(moment, "_halted", lambda _: 0)  # it hangs for a reason that the kernel does not tell
    monkeypatch.setattr(serving, "GLANCE", 0.2)
    os.kill(state.pid, signal.SIGSTOP)
    seen = moment.look(expectation, state, ())
    assert "/v1/models: timed out" in seen.silence and seen.running is None


def test_nobody_there_and_another_model(engine: tuple[UnitState, Expectation]) -> None:
    state, expectation = engine
    assert "it serves m, not other" in moment.look(replace(expectation, model="other"), state, ()).difference
    assert "Connection refused" in moment.look(replace(expectation, port=1), state, ()).silence


def test_other_arguments_are_told(engine: tuple[UnitState, Expectation]) -> None:
    state, expectation = engine
    said = moment.look(replace(expectation, command=("vllm", "--port=1")), state, ()).difference
    assert "was not started with the unit's command: missing vllm --port=1" in said


def test_an_engine_started_by_hand_is_seen_with_its_arguments(engine: tuple[UnitState, Expectation]) -> None:
    _, expectation = engine
    unit = UnitState("vllm-r.service", "loaded", "inactive", "dead", "enabled", "success", 0, "", 0, "", False)
    argv = (sys.executable, "-c", "print(flush=True); input()", "--api-key", "sekret", "--max-model-len=7")
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as hand:
        assert hand.stdout
        hand.stdout.readline()  # its command line is its own from here on
        owner = PortOwner(expectation.port, hand.pid, "python", "session-3.scope")
        said = moment.look(replace(expectation, command=("vllm",)), unit, (owner,)).difference
        more = moment.look(replace(expectation, command=argv[:3]), unit, (owner,)).difference
        same = moment.look(replace(expectation, command=argv), unit, (owner,)).difference
        hand.kill()
    assert more.endswith("it was not started with the unit's command: found --api-key *** --max-model-len=7")
    assert same.endswith("it was started with the unit's own arguments")
    assert said.startswith(f"process {hand.pid} of session-3.scope listens on port {expectation.port}")
    assert "--api-key *** --max-model-len=7" in said and "sekret" not in said
    assert moment.look(expectation, unit, (replace(owner, unit="vllm-r.service"),)) == Live("r")
