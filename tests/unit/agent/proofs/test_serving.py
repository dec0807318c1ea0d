"""An engine asked over real HTTP."""

import http.server
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from typing import ClassVar

import pytest

from sparkfleet.agent.errors import HostError
from sparkfleet.agent.proofs import serving
from sparkfleet.agent.proofs.canary import Answer
from sparkfleet.agent.shapes import Prompt


class Engine(http.server.BaseHTTPRequestHandler):
    """A server that answers what the test put into ``answers`` by path."""

    answers: ClassVar[dict[str, tuple[int, object]]] = {}
    keys: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.keys.append(self.headers.get("Authorization", ""))
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
    Engine.keys.clear()
    Engine.answers = {"/v1/models": (200, {"data": [{"id": "m"}]})}
    yield server.server_port
    server.shutdown()
    server.server_close()


def test_ready_means_the_right_model(engine: int) -> None:
    serving.wait_until_ready(serving.Engine(engine), "m", os.getpid())
    with pytest.raises(HostError, match="expected the model other, found m"):
        serving.wait_until_ready(serving.Engine(engine), "other", os.getpid())


def test_somebody_else_on_the_port_is_not_the_engine(engine: int) -> None:
    other = subprocess.Popen(["sleep", "60"])
    try:
        with pytest.raises(HostError, match="another process answers there"):
            serving.wait_until_ready(serving.Engine(engine), "m", other.pid)
    finally:
        other.kill()
        other.wait()


def test_an_engine_that_died_is_not_waited_for() -> None:
    with pytest.raises(HostError, match="ended before it answered"):
        serving.wait_until_ready(serving.Engine(9), "m", 2**22 + 1)  # above the kernel's largest process number


def chat(port: int, stream: bool = False) -> Answer:
    return serving.chat(serving.Engine(port, "k"), "m", Prompt("p", "12*17?", "", "", 16, stream))


def message(content: object, **other: object) -> dict[str, object]:
    choice = {"message": {"content": content, **other}, "finish_reason": "stop"}
    return {"choices": [choice], "usage": {"completion_tokens": 3}}


def test_a_chat_gives_text_tokens_and_why_it_ended(engine: int) -> None:
    Engine.answers["/v1/chat/completions"] = (200, message("204"))
    assert chat(engine) == Answer("204", "", "stop", 3)
    assert Engine.keys == ["Bearer k"]


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_what_a_parser_set_apart_is_not_content(engine: int, name: str) -> None:
    Engine.answers["/v1/chat/completions"] = (200, message(None, **{name: "hm"}))
    assert chat(engine) == Answer("", "hm", "stop", 3)


def stream(*events: object, end: str = "data: [DONE]\n\n") -> bytes:
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events).encode() + end.encode()


def delta(**what: object) -> dict[str, object]:
    return {"choices": [{"delta": what, "finish_reason": None}]}


USAGE = {"choices": [], "usage": {"completion_tokens": 7}}


def test_a_stream_is_put_together_and_timed(engine: int) -> None:
    last = {"choices": [{"delta": {}, "finish_reason": "length"}]}
    said = stream(delta(role="assistant", content=""), delta(reasoning="hm"), delta(content="20"), delta(content="4"))
    Engine.answers["/v1/chat/completions"] = (200, said.replace(b"data: [DONE]\n\n", b"") + stream(last, USAGE))
    answer = chat(engine, stream=True)
    assert (answer.content, answer.reasoning, answer.finish, answer.tokens) == ("204", "hm", "length", 7)
    assert answer.first >= 0 and answer.seconds >= 0


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (stream(delta(content="2"), end=""), "ended before it was done"),
        (stream({"error": {"message": "out of memory"}}), "out of memory"),
        (stream({"no": "choices"}), "not of the shape"),
        (b"data: {\n\n", "not of the shape"),
    ],
)
def test_a_stream_that_breaks_is_not_an_answer(engine: int, body: bytes, said: str) -> None:
    Engine.answers["/v1/chat/completions"] = (200, body)
    with pytest.raises(serving.NotServing, match=said):
        chat(engine, stream=True)


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (500, {"error": "boom"}, "HTTP 500"),
        (200, b"not json", "Expecting value"),
        (200, ["list"], "something else than an object"),
        (200, {"choices": []}, "not of the shape"),
        (200, {"choices": [{"message": None}], "usage": {}}, "not of the shape"),
    ],
)
def test_anything_else_is_not_serving(engine: int, status: int, body: object, said: str) -> None:
    Engine.answers["/v1/chat/completions"] = (status, body)
    with pytest.raises(serving.NotServing, match=said):
        chat(engine)


def test_models_come_with_their_context(engine: int) -> None:
    Engine.answers["/v1/models"] = (200, {"data": [{"id": "m", "max_model_len": 512}, {"id": "n"}]})
    assert serving.models(serving.Engine(engine)) == {"m": 512, "n": 0}
    Engine.answers["/v1/models"] = (200, {"data": [3]})
    with pytest.raises(serving.NotServing, match="something else than models"):
        serving.models(serving.Engine(engine))
