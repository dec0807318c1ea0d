"""Load from ``vllm bench serve``, which is in every release, run as the system user.

Of its data sets only ``random`` can be had: ``custom`` wants pandas, which no closure of vLLM brings.
"""

import contextlib
import json
import os
import pwd
import re
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import lifeline
from ..command import run_logged
from ..errors import HostError
from ..progress import INTERVAL, say
from .shapes import VLLM, Bench, BenchOrder, Load, Stream

#: A result with every token's time: 32 streams of 200 tokens are 0.2 MB.
_LIMIT = 64_000_000

_RESULT = "result.json"


@dataclass(frozen=True)
class Generator:
    """How the load for one unit is made. ``environment``: that of the engine's process, with its API key."""

    bench: Bench
    order: BenchOrder
    environment: Mapping[str, str]

    def command(self, concurrency: int, streams: int, directory: str) -> tuple[str, ...]:
        """What is run. The key is in the environment, never here."""
        expectation = self.bench.expectation
        host = f"[{expectation.address}]" if ":" in expectation.address else expectation.address
        options: dict[str, object] = {
            "backend": "openai-chat",
            "base-url": f"http://{host}:{expectation.port}",
            "endpoint": "/v1/chat/completions",
            "model": expectation.model,
            "tokenizer": self.bench.model.path,
            "dataset-name": "random",
            "random-input-len": self.order.prompt_tokens,
            "random-output-len": self.order.tokens,
            "num-prompts": streams,
            "max-concurrency": concurrency,
            "num-warmups": 1,
            "temperature": 0,
            "seed": concurrency,  # other prompts for each load: none is in the prefix cache
            "result-dir": directory,
            "result-filename": _RESULT,
        }
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        words += ["--ignore-eos", "--save-result", "--save-detailed"]
        words += ["--trust-remote-code"] if self.bench.remote_code else []
        return (f"{self.bench.release}/bin/vllm", "bench", "serve", *words)

    def measure(self, concurrency: int, streams: int) -> Load:
        """So many streams, so many at once. Raises HostError when it does not come to an end."""
        with _directory(self.order.user) as directory, _told(streams) as watch:
            run_logged(
                self.command(concurrency, streams, directory),
                Path(self.order.logs) / f"bench-{self.bench.expectation.recipe}.log",
                _environment(self.environment, self.order.home),
                watch,
                user=self.order.user,
            )
            return load(_read(Path(directory) / _RESULT), concurrency)


def missing_module(said: str) -> str:
    """The module that Python did not find, by what it said; or empty."""
    found = re.search(r"No module named '?([\w.]+)|Please install vllm\[(\w+)\]", said)
    return (found[1] or found[2]) if found else ""


def load(result: dict[str, Any], concurrency: int) -> Load:
    """What a result with details says, as vLLM 0.20 to 0.33 write it. Raises HostError when it is of another shape."""
    try:
        rows = list(zip(result["ttfts"], result["itls"], result["output_lens"], result["errors"], strict=True))
        streams = tuple(_stream(*row[:3]) for row in rows if not row[3])
        if rows and not streams:
            raise HostError(f"all {len(rows)} requests failed: {' '.join(str(rows[0][3]).split())[-200:]}")
        return Load(VLLM, concurrency, _seconds(result["duration"]), streams, len(rows) - len(streams))
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        said = f"{type(error).__name__}: {error}"
        raise HostError(f"the result of `{VLLM}` is not of the expected shape ({said:.200}).") from None


def _stream(first: Any, times: Any, tokens: Any) -> Stream:
    return Stream(_seconds(first), _seconds(sum(times)), int(tokens))


def _seconds(value: Any) -> float:
    number = float(value)
    if not 0 <= number < 1e9:  # not a number is neither
        raise ValueError(f"{value!r:.40} seconds")
    return number


def _environment(engine: Mapping[str, str], home: str) -> dict[str, str]:
    """The engine's own, so that caches and offline switches are the same; its key under the client's name."""
    kept = {name: value for name, value in engine.items() if not name.startswith(("VLLM_API_KEY", "SPARKFLEET_"))}
    key = {"OPENAI_API_KEY": engine["VLLM_API_KEY"]} if engine.get("VLLM_API_KEY") else {}
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", **kept, "HOME": home, **key}


@contextlib.contextmanager
def _told(streams: int) -> Iterator[Callable[[str], None]]:
    """Say every ``INTERVAL`` seconds how far it is, by the lines that it prints; its start alone takes that long."""
    done, over, began = 0, threading.Event(), time.monotonic()

    def watch(line: str) -> None:
        nonlocal done
        found = re.search(r"\b(\d+)/(\d+) \[", line)  # its progress bar; that of the warm-up has another end
        if found and int(found[2]) == streams:
            done = max(done, int(found[1]))

    def tell() -> None:
        while not over.wait(INTERVAL):
            say(f"  {VLLM}: {time.monotonic() - began:.0f} s, {done} of {streams} answers")

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield watch
    finally:
        over.set()
        teller.join()


@contextlib.contextmanager
def _directory(user: str) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="sparkfleet-bench-") as directory:
        owner = pwd.getpwnam(user)
        os.chown(directory, owner.pw_uid, owner.pw_gid)
        lifeline.on_end(lambda: shutil.rmtree(directory, ignore_errors=True))
        try:
            yield directory
        finally:
            lifeline.on_end(None)


def _read(path: Path) -> dict[str, Any]:
    """The result; the directory is the unprivileged user's, so no link is followed out of it."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1 or status.st_size > _LIMIT:
                raise HostError(f"{path}: not the result of `{VLLM}`.")
            content = json.loads(file.read(_LIMIT))
    except (OSError, ValueError, RecursionError) as error:
        raise HostError(f"`{VLLM}` left no result that can be read ({error}).") from None
    if not isinstance(content, dict):
        raise HostError(f"{path}: not the result of `{VLLM}`.")
    return content
