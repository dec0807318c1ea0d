"""Ask an engine on this machine through its own API: is it there, is it the right model, is what it says sane."""

import http.client
import json
import os
import time
from typing import Any

from . import ports, receipt
from .errors import HostError
from .shapes import Author, Expectation, Verified
from .units import look

#: Seconds between two looks at an engine that is starting.
INTERVAL = 0.25


class NotServing(Exception):
    """The engine does not answer, or not as it should."""


def wait_until_ready(port: int, model: str, pid: int) -> None:
    """Return once ``/v1/models`` names ``model``. The unit's start timeout bounds this.

    Raises HostError as soon as the engine's process ``pid`` is gone, names other models, or finds its port taken.
    """
    while True:
        if not os.path.exists(f"/proc/{pid}"):
            raise HostError(f"the engine (process {pid}) ended before it answered on port {port}.")
        try:
            found = models(port)
        except NotServing:
            time.sleep(INTERVAL)
            continue
        if not ports.is_held_by(pid, port):
            raise HostError(f"port {port}: another process answers there, not the engine. Stop it, then start again.")
        if found != [model]:
            raise HostError(f"port {port}: expected the model {model}, found {', '.join(found) or 'none'}.")
        return


def models(port: int) -> list[str]:
    """The ids that ``/v1/models`` names. Raises NotServing."""
    try:
        return [str(entry["id"]) for entry in _ask(port, "GET", "/v1/models", timeout=5)["data"]]
    except (KeyError, TypeError):
        raise NotServing(f"port {port}: /v1/models answers with something else than models") from None


def remember(outcome: Verified, author: Author) -> None:
    """Record what came of a verification."""
    known = dict(receipt.read().get("verified", {}))
    receipt.record(author, verified=known | {outcome.recipe: outcome.__dict__})


def verify(expectation: Expectation) -> Verified:
    """One question at temperature 0; what came of it, never an exception."""
    (state,) = look((expectation.unit,))
    started = time.monotonic()
    answer, tokens, reason = "", 0, ""
    try:
        if (found := models(expectation.port)) != [expectation.model]:
            raise NotServing(f"expected the model {expectation.model}, found {', '.join(found) or 'none'}")
        if not ports.is_held_by(state.pid, expectation.port):
            raise NotServing(f"port {expectation.port}: another process answers there, not {expectation.unit}")
        started = time.monotonic()
        answer, tokens = chat(expectation)
        reason = complaint(answer)
    except NotServing as error:
        reason = str(error)
    elapsed = time.monotonic() - started
    return Verified(
        recipe=expectation.recipe,
        invocation=state.invocation,
        passed=not reason,
        reason=reason,
        question=expectation.question,
        answer=answer,
        tokens_per_second=round(tokens / elapsed, 1) if tokens else 0.0,
        at=round(time.time(), 1),
    )


def chat(expectation: Expectation) -> tuple[str, int]:
    """The answer to the expectation's question and its number of tokens. Raises NotServing."""
    request = {
        "model": expectation.model,
        "messages": [{"role": "user", "content": expectation.question}],
        "max_tokens": expectation.max_tokens,
        "temperature": 0,
    }
    answer = _ask(expectation.port, "POST", "/v1/chat/completions", request, timeout=300)
    try:
        content = answer["choices"][0]["message"]["content"]
        return str(content or ""), int(answer["usage"]["completion_tokens"])
    except (KeyError, IndexError, TypeError, ValueError):
        raise NotServing("the chat completion is not of the shape the API promises") from None


def complaint(answer: str) -> str:
    """Why ``answer`` is not something a healthy model says; empty when it may be."""
    text = answer.strip()
    if not text:
        return "the answer is empty (`content` is null or blank): a reasoning parser may have taken all of it"
    if len(text) > 3 and len(set(text)) == 1:
        what = f"the answer is one character repeated ({text[:16]})"
        if text[0] == "!":
            return (
                f"{what}. '!' is token 0: the engine returns token 0 for every position, which means that its logits "
                f"are all equal or not numbers. On SM121 that is the sign of a wrong FP4 or attention kernel or of "
                f"broken weights: check the patch set, the backend flags of the recipe and the weights."
            )
        return f"{what}: its logits are broken; check the backend flags of the recipe and the weights"
    return ""


def _ask(port: int, method: str, path: str, body: object = None, timeout: float = 60) -> dict[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        payload = json.dumps(body) if body is not None else None
        connection.request(method, path, payload, {"Content-Type": "application/json"})
        response = connection.getresponse()
        raw = response.read()
        if response.status != 200:
            raise NotServing(f"{path} answers with HTTP {response.status}: {raw[:200].decode('utf-8', 'replace')}")
        answer = json.loads(raw)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NotServing(f"port {port}{path}: {error or type(error).__name__}") from None
    finally:
        connection.close()
    if not isinstance(answer, dict):
        raise NotServing(f"{path} answers with something else than an object")
    return answer
