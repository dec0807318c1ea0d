"""Behaviour probes: what a patched release does, asked of the release's own Python."""

import os
import pkgutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from .shapes import Probe, ProbeResult

#: Seconds; importing a compiler for the first time from a cold disk takes a good part of a minute.
TIMEOUT = 180.0


def run(site: Path, wanted: Sequence[tuple[str, Probe]], python: Path | None) -> tuple[ProbeResult, ...]:
    """Try each probe on ``site`` with ``python``, or with the one of its virtual environment."""
    if not wanted:
        return ()
    program = python or find_python(site)
    if program is None:
        return tuple(ProbeResult(patch, "untried", "no Python of this release found; name one") for patch, _ in wanted)
    return tuple(_one(site, patch, probe, program) for patch, probe in wanted)


def find_python(site: Path) -> Path | None:
    """The Python of the virtual environment (``lib/pythonX.Y/site-packages``) that ``site`` is in."""
    if len(site.parents) < 3:
        return None
    program = site.parents[2] / "bin" / "python"
    return program if os.access(program, os.X_OK) else None


def _one(site: Path, patch: str, probe: Probe, python: Path) -> ProbeResult:
    helpers = pkgutil.get_data(__package__, "probe_helpers.py")
    assert helpers is not None
    program = f"{helpers.decode()}\n\nsys.exit(main(sys.argv[1], sys.argv[2]))\n"
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "LC_ALL": "C.UTF-8", **probe.environment}
    # -I: nothing of the caller's; -B: a probe leaves no bytecode behind.
    argv = [str(python), "-I", "-B", "-c", program, str(site), probe.code]
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT,
            env=environment,
            cwd="/",
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        return ProbeResult(patch, "failed", f"did not end within {TIMEOUT:.0f} s")
    except OSError as error:
        return ProbeResult(patch, "untried", f"{python}: {error.strerror or error}")
    said = (done.stdout.strip() or done.stderr.strip()).splitlines()
    detail = said[-1][:300] if said else ""
    if done.returncode == 0:
        return ProbeResult(patch, "passed", detail)
    if done.returncode == 3:
        return ProbeResult(patch, "untried", detail)
    return ProbeResult(patch, "failed", detail or f"exit status {done.returncode}")
