"""Read an inventory as pyinfra reads it, by asking pyinfra itself: its precedence of data is not ours to repeat."""

import json
import subprocess
import sys
from typing import Any

from sparkfleet.errors import UserError


def hosts(inventory: str) -> dict[str, dict[str, Any]]:
    """Every host of ``inventory`` with its data, group data included. No host is contacted.

    Raises UserError with what pyinfra says when it cannot be read.
    """
    command = (sys.executable, "-m", "pyinfra", inventory, "debug-inventory", "--json")
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    try:
        return {str(entry["name"]): dict(entry["data"]) for entry in json.loads(done.stdout)}
    except (ValueError, KeyError, TypeError):
        said = " ".join((done.stderr or done.stdout).split())[-600:]
        raise UserError(f"{inventory}: pyinfra cannot read this inventory: {said or 'it printed nothing'}.") from None
