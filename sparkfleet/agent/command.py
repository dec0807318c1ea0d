"""Run another program for the agent: nothing on its standard input, its output kept, its failure explained."""

import os
import pwd
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .errors import HostError


def run(argv: Sequence[str], timeout: float = 60.0) -> str:
    """Run ``argv`` and return its standard output.

    Raises HostError with the end of what it printed when it fails, is missing or takes longer than ``timeout`` seconds.
    """
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, encoding="utf-8", errors="replace"
        )
    except subprocess.TimeoutExpired:
        raise HostError(f"`{' '.join(argv)}` did not end within {timeout:.0f} s.") from None
    except OSError as error:
        raise HostError(f"`{argv[0]}` cannot be run: {error.strerror or error}.") from None
    if done.returncode != 0:
        said = _tail(done.stderr or done.stdout)
        raise HostError(f"`{' '.join(argv)}` failed with exit status {done.returncode}: {said}")
    return done.stdout


def run_logged(
    argv: Sequence[str],
    log: Path,
    environment: Mapping[str, str],
    watch: Callable[[str], None] | None = None,
    user: str = "",
) -> None:
    """Run ``argv``, as ``user`` if one is named, appending all it prints to ``log``; ``watch`` sees each line.

    Raises HostError with the last lines when it fails.
    """
    lines: list[str] = []
    with log.open("a", encoding="utf-8") as file:
        file.write(f"$ {' '.join(argv)}\n")
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            encoding="utf-8",
            errors="replace",
            **_identity(user),
        )
        assert process.stdout
        for line in process.stdout:
            file.write(line)
            file.flush()
            lines = [*lines[-19:], line]
            if watch and line.strip():
                watch(line.strip())
        code = process.wait()
    if code != 0:
        raise HostError(f"`{Path(argv[0]).name} {argv[1]}` failed with exit status {code}: {_tail(''.join(lines))}")


def _identity(user: str) -> dict[str, Any]:
    """Nothing of root's is left to a process of ``user``."""
    if not user or os.geteuid() == pwd.getpwnam(user).pw_uid:
        return {}
    number, group = pwd.getpwnam(user)[2:4]
    return {"user": number, "group": group, "extra_groups": [], "cwd": "/"}


def _tail(text: str) -> str:
    return " ".join(text.split())[-600:] or "it printed nothing"
