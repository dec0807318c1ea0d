"""Load from threads of our own, each with one stream at a time. It needs nothing of the release."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from ..proofs import serving
from ..proofs.serving import Engine
from ..shapes import Prompt
from .shapes import OWN, Load, Stream

#: What it says does not matter, so it may go on beyond its end.
_TALK = Prompt("bench", "Tell me a long story about a lighthouse and the people who keep it.", "", "", 0, stream=True)


def measure(engine: Engine, model: str, concurrency: int, streams: int, tokens: int) -> Load:
    """``streams`` answers of ``tokens`` tokens, so many of them at once. Raises NotServing when one fails."""
    prompt = replace(_TALK, max_tokens=tokens)
    began = time.monotonic()
    with ThreadPoolExecutor(concurrency) as threads:
        found = list(threads.map(lambda _: _one(engine, model, prompt), range(streams)))
    return Load(OWN, concurrency, time.monotonic() - began, tuple(found))


def _one(engine: Engine, model: str, prompt: Prompt) -> Stream:
    answer = serving.chat(engine, model, prompt, ignore_eos=True)
    return Stream(answer.first, answer.seconds, answer.tokens)
