"""Load, its results as vLLM writes them, and what is done without vLLM's generator."""

import http.server
import json
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkfleet import bench
from sparkfleet.agent.audit.shapes import Model
from sparkfleet.agent.bench import own, run, vllm
from sparkfleet.agent.bench.shapes import OWN, VLLM, Bench, BenchOrder, Load, Measured, Results, Stream
from sparkfleet.agent.errors import HostError
from sparkfleet.agent.proofs.serving import Engine, NotServing
from sparkfleet.agent.shapes import Expectation, Speed

STEP = 0.02


class Paced(http.server.BaseHTTPRequestHandler):
    """Streams a token every ``STEP`` seconds, the first after two."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if asked["max_tokens"] > 50:
            self.send_error(400)
            return
        self.send_response(200)
        self.send_header("Connection", "close")
        self.end_headers()
        time.sleep(STEP)
        for _ in range(asked["max_tokens"]):
            time.sleep(STEP)
            self.event({"choices": [{"delta": {"content": "a "}, "finish_reason": None}]})
        self.event({"choices": [], "usage": {"completion_tokens": asked["max_tokens"]}})
        self.wfile.write(b"data: [DONE]\n\n")

    def event(self, content: dict[str, Any]) -> None:
        self.wfile.write(f"data: {json.dumps(content)}\n\n".encode())
        self.wfile.flush()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def engine() -> Iterator[Engine]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Paced)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield Engine(server.server_port)
    server.shutdown()
    server.server_close()


def test_our_own_streams_measure_no_more_than_there_is(engine: Engine) -> None:
    found = own.measure(engine, "m", 4, 8, 20)
    assert (found.generator, len(found.streams), found.failed) == (OWN, 8, 0)
    point = bench.point(found)
    assert point.each <= 1 / STEP * 1.02
    assert point.total <= 4 * 20 / (21 * STEP) * 1.02
    assert point.first >= 2 * STEP * 0.98
    assert point.tokens == 160


def test_a_stream_that_fails_is_an_error(engine: Engine) -> None:
    with pytest.raises(NotServing, match="HTTP 400"):
        own.measure(engine, "m", 2, 4, 51)


def generator(release: Path, directory: Path, key: str = "secret") -> vllm.Generator:
    expectation = Expectation("r", "u", 8000, "served", 0, (), {}, "", (), (), Speed(0))
    order = BenchOrder("run", (), (1, 4), 200, 32, _me(), str(directory), str(directory / "results"), str(directory))
    environment = {"VLLM_API_KEY": key, "HF_HUB_OFFLINE": "1", "SPARKFLEET_UNIT_DIGEST": "d"}
    return vllm.Generator(Bench(expectation, str(release), Model("r", "/model", ""), True), order, environment)


def _me() -> str:
    import pwd

    return pwd.getpwuid(os.geteuid()).pw_name


RESULT = {
    "duration": 2.5,
    "ttfts": [0.1, 0.2],
    "itls": [[0.01] * 199, []],
    "output_lens": [200, 0],
    "errors": ["", "x"],
}


def release(directory: Path, script: str) -> Path:
    path = directory / "bin" / "vllm"
    path.parent.mkdir()
    path.write_text(f"#!/usr/bin/env python3\nimport json, os, sys\n{script}\n")
    path.chmod(0o755)
    return directory


WRITES = (
    "where = sys.argv[sys.argv.index('--result-dir') + 1] + '/' + sys.argv[sys.argv.index('--result-filename') + 1]\n"
)


def test_vllms_generator_is_run_and_read(tmp_path: Path) -> None:
    script = (
        f"{WRITES}json.dump({RESULT!r}, open(where, 'w'))\n"
        f"json.dump([sys.argv, dict(os.environ)], open({str(tmp_path / 'seen')!r}, 'w'))"
    )
    found = generator(release(tmp_path, script), tmp_path).measure(4, 8)
    assert found == Load(VLLM, 4, 2.5, (Stream(0.1, pytest.approx(1.99), 200),), failed=1)
    argv, environment = json.loads((tmp_path / "seen").read_text())
    words = dict(zip(argv[3::2], argv[4::2], strict=False))
    assert words["--num-prompts"] == "8" and words["--max-concurrency"] == "4" and words["--random-output-len"] == "200"
    assert {"--ignore-eos", "--save-detailed", "--trust-remote-code"} <= set(argv)
    assert "secret" not in " ".join(argv)
    assert environment["OPENAI_API_KEY"] == "secret" and environment["HF_HUB_OFFLINE"] == "1"
    assert "VLLM_API_KEY" not in environment and environment["HOME"] == str(tmp_path)


@pytest.mark.parametrize(("address", "url"), [("127.0.0.1", "http://127.0.0.1:8000"), ("::1", "http://[::1]:8000")])
def test_the_load_goes_where_the_engine_listens(tmp_path: Path, address: str, url: str) -> None:
    made = generator(tmp_path, tmp_path)
    there = replace(made.bench, expectation=replace(made.bench.expectation, address=address))
    command = replace(made, bench=there).command(1, 4, "DIR")
    assert command[command.index("--base-url") + 1] == url


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("import pandas_of_nowhere", "No module named 'pandas_of_nowhere'"),
        ("sys.exit(3)", "exit status 3"),
        ("", "left no result"),
        (f"{WRITES}json.dump({RESULT!r}, open(where + '2', 'w')); os.symlink(where + '2', where)", "left no result"),
        (f"{WRITES}open(where, 'w').write('[1]')", "not the result"),
        (f"{WRITES}os.mkfifo(where)", "not the result"),
    ],
)
def test_a_generator_that_does_not_do_its_work(tmp_path: Path, script: str, expected: str) -> None:
    with pytest.raises(HostError, match=expected):
        generator(release(tmp_path, script), tmp_path).measure(1, 4)
    assert "secret" not in (tmp_path / "bench-r.log").read_text()


def test_requests_that_all_failed_are_no_load() -> None:
    with pytest.raises(HostError, match=r"all 2 requests failed: .*Bad Request"):
        vllm.load(RESULT | {"errors": ["Traceback ...\nBad Request\n", "x"]}, 1)


def test_a_missing_module_is_named() -> None:
    assert vllm.missing_module("ModuleNotFoundError: No module named 'pandas'") == "pandas"
    assert vllm.missing_module("ImportError: Please install vllm[bench] for it") == "bench"
    assert vllm.missing_module("it failed") == ""


def test_without_vllms_generator_our_own_measures_everything(tmp_path: Path, engine: Engine) -> None:
    made = generator(release(tmp_path, "import pandas_of_nowhere"), tmp_path)
    expectation = Expectation("r", "u", engine.port, "m", 0, (), {}, "", (), (), Speed(0))
    order = BenchOrder("run", (), (1, 2, 4), 5, 32, _me(), str(tmp_path), "", str(tmp_path))
    made = vllm.Generator(Bench(expectation, made.bench.release, made.bench.model, False), order, {})
    loads, note = run._loads(made, engine)
    assert [(one.generator, one.concurrency) for one in loads] == [(OWN, 1), (OWN, 2), (OWN, 4)]
    assert "needs the module pandas_of_nowhere" in note


def test_results_of_another_run_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="no results"):
        run.results(str(tmp_path / "absent"))
    from sparkfleet.agent import wire

    (tmp_path / "r").write_text(wire.encode(Results("this", (Measured("r", 1.0),))))
    assert run.results(str(tmp_path / "r")).run == "this"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from([*RESULT]), JSON | st.lists(JSON, max_size=3)))
def test_any_result_is_read_or_refused(result: dict[str, Any]) -> None:
    try:
        found = vllm.load(result, 1)
    except HostError as error:
        assert "not of the expected shape" in str(error) or "requests failed" in str(error)
    else:
        assert all(one.first >= 0 and one.seconds >= 0 for one in found.streams)
