"""Pick out of a unit's journal the lines that say why it did not start."""

import re
import textwrap

from ..command import run
from ..errors import HostError

_DECISIVE = re.compile(
    r"\b([A-Z]\w*(Error|Exception|Interrupt)\b|error:|ERROR|CRITICAL|Killed|refused|not found|expected .* found"
    r"|another process|Failed to locate|Failed at step)"
)

#: Not the cause: milder levels that only mention an error, and consequences of a failure that was logged before.
_NOISE = re.compile(
    r"\b(DEBUG|INFO|WARNING) \d|Engine core initialization failed|See root cause above|retrying \d+ of \d+"
    r"|^\s*File \"|^\s*(raise|return|await) "
)


def decisive(unit: str, since: float, most: int = 8) -> list[str]:
    """The lines since then (seconds since the epoch) that say why it failed; the last ones when none says it."""
    which = ("--unit", unit, f"--since=@{since:.3f}", "--lines=400", "--output=cat", "--no-pager", "--quiet")
    try:
        return pick(run(("journalctl", *which)).splitlines(), most)
    except HostError:
        return []


def of_start(invocation: str) -> list[str]:
    """Every line of one start of a unit; none where the journal does not answer."""
    if not invocation:
        return []
    which = (f"_SYSTEMD_INVOCATION_ID={invocation}", "--output=cat", "--no-pager", "--quiet")
    try:
        return [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in run(("journalctl", *which)).splitlines()]
    except HostError:
        return []


def pick(lines: list[str], most: int) -> list[str]:
    """The decisive ones among ``lines``, each once, in order."""
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in lines]
    chosen = [
        _with_reason(plain, i) for i, line in enumerate(plain) if _DECISIVE.search(line) and not _NOISE.search(line)
    ]
    unique = list(dict.fromkeys(chosen))
    return (unique or [line for line in plain if line])[-most:]


def _with_reason(lines: list[str], index: int) -> str:
    """The line, with what it announces: pydantic and others put the reason on the indented lines that follow."""
    line = lines[index]
    if not re.match(r"^\S+(Error|Exception):", line):
        return line
    following = [text for text in lines[index + 1 : index + 3] if re.match(r"\s+(?!File )\S", text)]
    return " ".join([line, *(text.strip() for text in following)])


def last(unit: str) -> str:
    """The last line of the unit's journal, without what engines and systemd put before the message, short."""
    try:
        lines = run(("journalctl", "--unit", unit, "--lines=1", "--output=cat", "--no-pager")).splitlines()
    except HostError:
        return ""
    line = re.sub(r"^(\(\w+ pid=\d+\) )?([A-Z]+ [\d-]+ [\d:]+ \[[^]]*\] )?", "", lines[-1].strip()) if lines else ""
    return "" if line.startswith("Starting ") else textwrap.shorten(line, 60, placeholder=" ...")
