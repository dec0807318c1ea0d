"""What counts as a sane answer, and an engine asked over real HTTP."""

import http.server
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from typing import ClassVar

import pytest

from sparkfleet.agent import serving
from sparkfleet.agent.errors import HostError
from sparkfleet.agent.shapes import Expectation


@pytest.mark.parametrize("answer", ["204", "12*17 = 204.", "No.", "!!!", "ab" * 50])
def test_sane_answers_pass(answer: str) -> None:
    assert serving.complaint(answer) == ""


@pytest.mark.parametrize("answer", ["", "  \n"])
def test_nothing_is_a_failure_that_names_the_parser(answer: str) -> None:
    assert "reasoning parser" in serving.complaint(answer)


@pytest.mark.parametrize("answer", ["!!!!", "!" * 200, " !!!!!!!! "])
def test_token_zero_is_named_with_what_it_means_on_sm121(answer: str) -> None:
    said = serving.complaint(answer)
    assert "token 0" in said and "SM121" in said


def test_another_character_repeated_is_a_failure_too() -> None:
    assert "one character repeated" in serving.complaint("aaaaaaaa")


class Engine(http.server.BaseHTTPRequestHandler):
    """A server that answers what the test put into ``answers`` by path."""

    answers: ClassVar[dict[str, tuple[int, object]]] = {}

    def do_GET(self) -> None:
        status, body = self.answers.get(self.path, (404, {}))
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def engine() -> Iterator[int]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Engine)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    Engine.answers = {"/v1/models": (200, {"data": [{"id": "m"}]})}
    yield server.server_port
    server.shutdown()
    server.server_close()


def test_ready_means_the_right_model(engine: int) -> None:
    serving.wait_until_ready(engine, "m", os.getpid())
    with pytest.raises(HostError, match="expected the model other, found m"):
        serving.wait_until_ready(engine, "other", os.getpid())


def test_somebody_else_on_the_port_is_not_the_engine(engine: int) -> None:
    other = subprocess.Popen(["sleep", "60"])
    try:
        with pytest.raises(HostError, match="another process answers there"):
            serving.wait_until_ready(engine, "m", other.pid)
    finally:
        other.kill()
        other.wait()


def test_an_engine_that_died_is_not_waited_for() -> None:
    with pytest.raises(HostError, match="ended before it answered"):
        serving.wait_until_ready(9, "m", 2**22 + 1)  # above the kernel's largest process number


def chat(port: int) -> tuple[str, int]:
    return serving.chat(Expectation("r", "u", port, "m", "12*17?", 16))


def test_a_chat_gives_text_and_tokens(engine: int) -> None:
    answer = {"choices": [{"message": {"content": "204"}}], "usage": {"completion_tokens": 3}}
    Engine.answers["/v1/chat/completions"] = (200, answer)
    assert chat(engine) == ("204", 3)


def test_null_content_is_an_empty_answer(engine: int) -> None:
    answer = {"choices": [{"message": {"content": None}}], "usage": {"completion_tokens": 3}}
    Engine.answers["/v1/chat/completions"] = (200, answer)
    assert chat(engine) == ("", 3)


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (500, {"error": "boom"}, "HTTP 500"),
        (200, b"not json", "port"),
        (200, ["list"], "something else than an object"),
        (200, {"choices": []}, "not of the shape"),
        (200, {"choices": [{"message": None}], "usage": {}}, "not of the shape"),
    ],
)
def test_anything_else_is_not_serving(engine: int, status: int, body: object, said: str) -> None:
    Engine.answers["/v1/chat/completions"] = (status, body)
    with pytest.raises(serving.NotServing, match=said):
        chat(engine)
