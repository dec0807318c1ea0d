"""The parsers that a release registers: names that ``--reasoning-parser`` and ``--tool-call-parser`` can take."""

import ast

from sparkfleet.errors import UserError
from sparkfleet.knowledge.source import Source

#: kind -> module and name of the table, the same from 0.17.1 to 0.33.0
TABLES = {
    "reasoning": ("vllm.reasoning", "_REASONING_PARSERS_TO_REGISTER"),
    "tool": ("vllm.tool_parsers", "_TOOL_PARSERS_TO_REGISTER"),
}


def parsers(source: Source) -> dict[str, list[str]]:
    """Names by kind, sorted. A plugin file may add others. Raises UserError when a table is not where it was."""
    return {kind: sorted(_names(source, module, table)) for kind, (module, table) in TABLES.items()}


def _names(source: Source, module: str, table: str) -> list[str]:
    for node in source.names(module).get(table, []):
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Dict):
            return [str(key.value) for key in node.value.keys if isinstance(key, ast.Constant)]
    raise UserError(f"{module}: expected a dictionary `{table}`; this vLLM registers its parsers elsewhere.")
