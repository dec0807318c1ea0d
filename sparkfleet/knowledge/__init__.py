"""What a vLLM accepts, read from its own source without running it: variables, flags of ``vllm serve``, parsers.

Only the syntax tree is read, because the wheels are for another machine: nothing of them can be imported here.
"""

import json
from pathlib import Path

from sparkfleet.knowledge.environment import environment
from sparkfleet.knowledge.flags import flags
from sparkfleet.knowledge.parsers import parsers
from sparkfleet.knowledge.source import Source

SCHEMA = 2


def knowledge(site: Path, engine: str, wheel: str, sha256: str) -> str:
    """The knowledge of an engine as JSON, the same bytes for the same wheel.

    ``site`` holds the directory ``vllm`` of the wheel named ``wheel``. Raises UserError when its source is of a shape
    that this program does not know.
    """
    source = Source(site)
    return dump(
        {
            "schema": SCHEMA,
            "engine": engine,
            "wheel": {"name": wheel, "sha256": sha256},
            "environment": environment(source),
            "flags": flags(source),
            "parsers": parsers(source),
        }
    )


def dump(content: dict[str, object]) -> str:
    """JSON with sorted keys, a line for each variable, flag and kind of parser: a new release is read as a diff."""
    lines = ["{"]
    for key, value in content.items():
        if isinstance(value, dict) and key in ("environment", "flags", "parsers"):
            rows = [f"  {json.dumps(name)}: {json.dumps(value[name], sort_keys=True)}" for name in sorted(value)]
            lines.append(f" {json.dumps(key)}: {{\n" + ",\n".join(rows) + "\n },")
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(value, sort_keys=True)},")
    lines[-1] = lines[-1].removesuffix(",")
    return "\n".join([*lines, "}", ""])
