"""Read an inventory as pyinfra reads it, by asking pyinfra itself: its precedence of data is not ours to repeat."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from sparkfleet.errors import UserError


def hosts(inventory: str) -> dict[str, dict[str, Any]]:
    """Every host of ``inventory`` with its data, group data included. No host is contacted.

    Raises UserError with what pyinfra says when it cannot be read, or config.py when it cannot be meant.
    """
    command = (sys.executable, "-m", "pyinfra", inventory, "debug-inventory", "--json")
    log = Path("pyinfra-debug.log")  # pyinfra leaves one behind for any error in an inventory
    kept = log.exists()
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if not kept:
        log.unlink(missing_ok=True)
    try:
        return {str(entry["name"]): dict(entry["data"]) for entry in json.loads(done.stdout)}
    except (ValueError, KeyError, TypeError):
        _, refused, why = done.stderr.partition(f"--> pyinfra error: {inventory}: ")
        if refused:
            raise UserError(f"{inventory}: {why.strip()}") from None
        raise UserError(f"{inventory}: pyinfra cannot read this inventory: {_reason(done.stderr)}.") from None


def _reason(said: str) -> str:
    """The error itself out of what pyinfra prints around it, and the last place in a file it names."""
    errors = re.findall(r"^(?:--> pyinfra error.*?:\s*)?(?:\w+\.)*(\w*(?:Error|Exception): .*)$", said, re.MULTILINE)
    places = re.findall(r'File "([^"]+)", line (\d+)', said)
    where = f" ({places[-1][0]}, line {places[-1][1]})" if places else ""
    lines = [line.removeprefix("--> ").strip() for line in said.splitlines() if line.strip()]
    told = errors[-1] if errors else (lines[-1] if lines else "it printed nothing")
    return told.rstrip(".") + where
