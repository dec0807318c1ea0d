"""Run a command of this machine, with an error a person can act on."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from sparkfleet.errors import UserError


def environment(**more: str) -> dict[str, str]:
    """For programs whose output is read: English, and found also where root's PATH lacks the sbin directories."""
    return {**os.environ, "LC_ALL": "C", "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin", **more}


def call(argv: Sequence[str | Path], *, stdin: str = "", cwd: Path | None = None) -> str:
    """Standard output of a command that must succeed; its last words on standard error if it does not."""
    done = subprocess.run(
        [str(a) for a in argv],
        input=stdin,
        cwd=cwd,
        capture_output=True,
        text=True,
        errors="replace",
        env=environment(),
    )
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}").splitlines()[-1]
        raise UserError(f"`{' '.join(str(a) for a in argv)}` failed: {said}")
    return done.stdout
