"""Ask an engine on this machine through its own API: is it there, which models, what does it answer and how fast."""

import http.client
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from .. import ports
from ..errors import HostError
from ..shapes import Expectation, Prompt
from .canary import Answer

#: Seconds between two looks at an engine that is starting.
INTERVAL = 0.25

#: Seconds that one answer may take: 1,000 tokens of a 31B dense model on a Spark are 150.
PATIENCE = 600.0

#: Seconds that an answer may take for which nothing is computed.
GLANCE = 5.0

#: Bytes of metrics that are read: a busy vLLM has some 200,000.
MOST_METRICS = 8_000_000


class NotServing(Exception):
    """The engine does not answer, or not as it should."""


class Silent(NotServing):
    """The engine does not answer at all: nobody is there, or not in time."""


@dataclass(frozen=True)
class Engine:
    """Where an engine answers on this machine. ``key``: what it wants to see first, if it was given an API key."""

    port: int
    key: str = field(default="", repr=False)
    address: str = "127.0.0.1"


def engine_of(expectation: Expectation, environment: Mapping[str, str]) -> Engine:
    """The engine that should serve ``expectation``; its key is in the ``environment`` of its process."""
    return Engine(expectation.port, environment.get("VLLM_API_KEY", ""), expectation.address)


def wait_until_ready(engine: Engine, model: str, pid: int) -> None:
    """Return once ``/v1/models`` names ``model``. The unit's start timeout bounds this.

    Raises HostError as soon as the engine's process ``pid`` is gone, names other models, or finds its port taken.
    """
    while True:
        if not os.path.exists(f"/proc/{pid}"):
            raise HostError(f"the engine (process {pid}) ended before it answered on port {engine.port}.")
        try:
            found = list(models(engine))
        except NotServing:
            time.sleep(INTERVAL)
            continue
        if not ports.is_held_by(pid, engine.port):
            raise HostError(
                f"port {engine.port}: another process answers there, not the engine. Stop it, then start again."
            )
        if found != [model]:
            raise HostError(f"port {engine.port}: expected the model {model}, found {', '.join(found) or 'none'}.")
        return


def models(engine: Engine) -> dict[str, int]:
    """The ids that ``/v1/models`` names, each with its context length in tokens (0: not said). Raises NotServing."""
    with _asked(engine, "GET", "/v1/models", timeout=GLANCE) as response:
        answer = _json(response.read(), "/v1/models")
    try:
        return {str(entry["id"]): int(entry.get("max_model_len") or 0) for entry in answer["data"]}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise NotServing(f"port {engine.port}: /v1/models answers with something else than models") from None


def metrics(engine: Engine) -> str:
    """The Prometheus text of ``/metrics``, which no API key guards. Raises NotServing."""
    with _asked(engine, "GET", "/metrics", timeout=GLANCE) as response:
        return response.read(MOST_METRICS).decode("utf-8", "replace")


def chat(engine: Engine, model: str, prompt: Prompt, **more: Any) -> Answer:
    """The answer to ``prompt`` at temperature 0; ``more`` goes into the request. Raises NotServing."""
    system = [{"role": "system", "content": prompt.system}] if prompt.system else []
    request = {
        "model": model,
        "messages": [*system, {"role": "user", "content": prompt.ask}],
        "max_tokens": prompt.max_tokens,
        "temperature": 0,
        **more,
    }
    if prompt.stream:
        request |= {"stream": True, "stream_options": {"include_usage": True}}
    began = time.monotonic()
    with _asked(engine, "POST", "/v1/chat/completions", request, PATIENCE) as response:
        try:
            return (
                _streamed(response, began) if prompt.stream else _whole(_json(response.read(), "/v1/chat/completions"))
            )
        except (KeyError, IndexError, TypeError, ValueError, AttributeError):
            raise NotServing("the chat completion is not of the shape the API promises") from None


def _whole(answer: dict[str, Any]) -> Answer:
    choice = answer["choices"][0]
    message = choice["message"]
    content, reasoning = str(message["content"] or ""), _reasoning(message)
    return Answer(content, reasoning, str(choice["finish_reason"] or ""), int(answer["usage"]["completion_tokens"]))


def _reasoning(message: dict[str, Any]) -> str:
    """vLLM calls it ``reasoning``; before 0.12 ``reasoning_content``."""
    return str(message.get("reasoning") or message.get("reasoning_content") or "")


def _streamed(response: http.client.HTTPResponse, began: float) -> Answer:
    content, reasoning, finish, tokens = "", "", "", 0
    times: list[float] = []
    for event in _events(response):
        tokens = int((event.get("usage") or {}).get("completion_tokens") or tokens)
        for choice in event["choices"]:
            said, thought = str(choice["delta"].get("content") or ""), _reasoning(choice["delta"])
            content, reasoning = content + said, reasoning + thought
            finish = str(choice.get("finish_reason") or finish)
            if said or thought:
                times.append(time.monotonic())
    if not times:
        return Answer(content, reasoning, finish, tokens)
    return Answer(content, reasoning, finish, tokens, times[0] - began, times[-1] - times[0])


def _events(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    for raw in response:
        line = raw.decode("utf-8", "replace").strip()
        if line == "data: [DONE]":
            return
        if line.startswith("data: "):
            event = json.loads(line.removeprefix("data: "))
            if "error" in event:
                raise NotServing(f"the stream ended with an error: {str(event['error'])[:200]}")
            yield event
    raise NotServing("the stream ended before it was done")


@contextmanager
def _asked(
    engine: Engine, method: str, path: str, body: object = None, timeout: float = 60
) -> Iterator[http.client.HTTPResponse]:
    """The response to a request, whose status is 200. Raises NotServing for any other, and when there is none."""
    connection = http.client.HTTPConnection(engine.address, engine.port, timeout=timeout)
    try:
        payload = json.dumps(body) if body is not None else None
        authorization = {"Authorization": f"Bearer {engine.key}"} if engine.key else {}
        connection.request(method, path, payload, {"Content-Type": "application/json", **authorization})
        response = connection.getresponse()
        if response.status != 200:
            said = response.read()[:200].decode("utf-8", "replace")
            raise NotServing(f"{path} answers with HTTP {response.status}: {said}")
        yield response
    except (OSError, http.client.HTTPException) as error:
        raise Silent(f"port {engine.port}{path}: {error or type(error).__name__}") from None
    finally:
        connection.close()


def _json(raw: bytes, path: str) -> dict[str, Any]:
    try:
        answer = json.loads(raw)
    except ValueError as error:
        raise NotServing(f"{path}: {error}") from None
    if not isinstance(answer, dict):
        raise NotServing(f"{path} answers with something else than an object")
    return answer
