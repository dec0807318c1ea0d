"""Memory, from /proc/meminfo: a GB10 has no other, and reports none of it through the driver."""

import re

from .shapes import Memory
from .source import kernel_text


def look() -> Memory:
    """Look at /proc/meminfo."""
    return parse(kernel_text("/proc/meminfo") or "")


def parse(content: str) -> Memory:
    """/proc/meminfo in bytes."""
    found = re.findall(r"^(\w{1,40}):[ \t]+([0-9]{1,15}) kB[ \t]*$", content, re.MULTILINE | re.ASCII)
    kilobytes = {key: int(value) * 1024 for key, value in found}
    wanted = ("MemTotal", "MemAvailable", "CmaTotal", "CmaFree", "SwapTotal", "SwapFree")
    return Memory(*(kilobytes.get(key) for key in wanted))
