"""Where facts come from: files that may be missing or noise, programs that may besides hang or fail."""

import os
import re
import selectors
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

#: Marks a lab host. Its kernel is not a Spark's: what that would show in /proc, /sys and /dev is below ``root`` here.
LAB = Path("/etc/sparkfleet-lab")

#: More of a file or an answer than this is not looked at: none of those that are read is as long.
LIMIT = 4 * 1024 * 1024

#: Programs answer in English, and their decimal point is a point.
_ENVIRONMENT = {"LC_ALL": "C.UTF-8", "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}


@cache
def lab() -> str | None:
    """The scenario of a lab host, None on any other machine."""
    return text("/etc/sparkfleet-lab/scenario")


def text(path: str) -> str | None:
    """A file's text without space around it, None when it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(LIMIT).decode("utf-8", "replace").strip()
    except OSError:
        return None


def kernel_text(path: str) -> str | None:
    """What the kernel shows in ``path``. On a lab host its stand-in; where there is none, the real kernel's."""
    stand_in = text(str(kernel_path(path))) if lab() else None
    return text(path) if stand_in is None else stand_in


def spark_text(path: str) -> str | None:
    """What a Spark's own driver or firmware shows in ``path``: on a lab host the stand-in or nothing."""
    return text(str(kernel_path(path)))


def kernel_path(path: str) -> Path:
    """Where ``path`` of /proc, /sys or /dev is found: below the lab's directory on a lab host."""
    return LAB / "root" / path.lstrip("/") if lab() else Path(path)


def names(path: str | Path) -> list[str]:
    """What is in a directory, sorted; nothing when it cannot be read."""
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []


def assignments(content: str) -> list[tuple[str, str]]:
    """``NAME=value`` lines in their order, quotes around values taken off."""
    found = re.findall(r"^([A-Za-z_][A-Za-z0-9_]*)=(.*)$", content, re.MULTILINE)
    return [(key, value.strip().strip("\"'")) for key, value in found]


def one_line(content: str) -> str:
    """Text of a program as one line of plain characters, for a person."""
    return " ".join(re.sub(r"[^\x20-\x7e]+", " ", content).split())[:300]


def version_key(version: str) -> tuple[int, ...]:
    """A version as numbers: 580.95.05 is older than 580.142, and 6.17.0-1009 than 6.17.0-1014."""
    return tuple(int(part[:18]) for part in re.findall(r"[0-9]+", version))


@dataclass(frozen=True)
class Said:
    """What came of a program: its answer, or why there is none."""

    state: Literal["ended", "missing", "timeout"]
    stdout: bytes = b""
    stderr: bytes = b""
    code: int = 0
    detail: str = ""

    @property
    def text(self) -> str | None:
        """What it printed, None unless it ended well."""
        good = self.state == "ended" and self.code == 0
        return self.stdout.decode("utf-8", "replace") if good else None


class Program:
    """A program that runs while other facts are gathered. It is started at once; ``said`` waits for its answer."""

    def __init__(self, argv: Sequence[str], timeout: float = 10.0) -> None:
        self._name, self._timeout = Path(argv[0]).name, timeout
        self._deadline = time.monotonic() + timeout
        self._trouble = f"{self._name}: command not found"
        self._process: subprocess.Popen[bytes] | None = None
        path = shutil.which(argv[0], path=_ENVIRONMENT["PATH"])
        if path is None:
            return
        try:
            self._process = subprocess.Popen(
                (path, *argv[1:]),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=_ENVIRONMENT,
            )
        except OSError as error:
            self._trouble = f"{self._name}: {error.strerror or error}"

    def said(self) -> Said:
        """Its answer. One that hangs is killed and not waited for: a process stuck in a driver does not even die."""
        process = self._process
        if process is None:
            return Said("missing", detail=self._trouble)
        assert process.stdout and process.stderr
        streams = {process.stdout: bytearray(), process.stderr: bytearray()}
        whole = self._read(streams)
        for stream in streams:
            stream.close()
        if whole:
            try:
                process.wait(max(0.1, self._deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                whole = False
        if not whole:
            process.kill()
            return Said("timeout", detail=f"{self._name} gave no answer within {self._timeout:.0f} s")
        out, err = (bytes(content) for content in streams.values())
        return Said("ended", out, err, process.returncode)

    def _read(self, streams: dict) -> bool:  # type: ignore[type-arg]
        """Fill each stream's buffer to its end; False when time is up or a program does not stop printing."""
        with selectors.DefaultSelector() as selector:
            for stream in streams:
                selector.register(stream, selectors.EVENT_READ)
            while selector.get_map():
                left = self._deadline - time.monotonic()
                ready = selector.select(left) if left > 0 else []
                if not ready:
                    return False
                for key, _ in ready:
                    piece = os.read(key.fd, 65536)
                    streams[key.fileobj] += piece
                    if not piece:
                        selector.unregister(key.fileobj)
                    elif len(streams[key.fileobj]) > LIMIT:
                        return False
        return True
