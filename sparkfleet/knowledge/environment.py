"""The environment variables that ``vllm/envs.py`` knows: names, types, choices."""

import ast
from typing import Any

from sparkfleet.errors import UserError
from sparkfleet.knowledge.hints import Hint, hint
from sparkfleet.knowledge.source import Source

MODULE = "vllm.envs"


def environment(source: Source) -> dict[str, dict[str, Any]]:
    """Each variable with ``type`` (``bool``, ``int``, ``float``, ``str``, or None where the source does not say).

    ``choices`` are those that vLLM itself checks, ``case`` is there (``any``) when it does so without regard to case,
    ``many`` when the value is a list with commas. ``deprecated``: what vLLM says instead of it. ``true``: the only
    words that switch a ``bool`` on, where it is not read as a number. Raises UserError when the module has no table of
    variables.
    """
    table = _table(source)
    types = _types(source)
    found: dict[str, dict[str, Any]] = {}
    for key, value in zip(table.keys, table.values, strict=True):
        if not isinstance(key, ast.Constant):
            raise UserError(f"vllm/envs.py:{value.lineno}: a variable without a plain name; this reader is too old.")
        kind = _type(types.get(str(key.value)), value)
        found[str(key.value)] = {"type": kind} | _checked(value) | (_truths(value) if kind == "bool" else {})
    return found


def _table(source: Source) -> ast.Dict:
    for node in source.names(MODULE).get("environment_variables", []):
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Dict):
            return node.value
    raise UserError(
        "vllm/envs.py: expected a dictionary `environment_variables`; this vLLM keeps its variables elsewhere."
    )


def _types(source: Source) -> dict[str, Hint]:
    return {
        name: hint(source, MODULE, node.annotation)
        for name, nodes in source.names(MODULE).items()
        for node in nodes
        if isinstance(node, ast.AnnAssign) and name != "environment_variables"
    }


def _type(declared: Hint | None, getter: ast.expr) -> str | None:
    if declared:
        if "bool" in declared.plain:
            return "bool"
        known = declared.plain & {"int", "float", "str"}
        if declared.literals or len(known) > 1:
            return "str"
        if known:
            return known.pop()
        if declared.collections:
            return "str"
    calls = {
        node.func.id for node in ast.walk(getter) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    return next((name for name in ("bool", "int", "float") if name in calls), None)


def _checked(getter: ast.expr) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for call in (node for node in ast.walk(getter) if isinstance(node, ast.Call)):
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        if name in ("env_with_choices", "env_list_with_choices", "env_set_with_choices"):
            choices = _literal(_argument(call, 2, "choices"))
            if isinstance(choices, list):
                found["choices"] = sorted(choices)
            if _literal(_argument(call, 3, "case_sensitive")) is False:
                found["case"] = "any"
            if name != "env_with_choices":
                found["many"] = True
        elif name == "deprecated_env":
            found["deprecated"] = _literal(_argument(call, 2, "replacement")) or "deprecated"
    return found


def _truths(getter: ast.expr) -> dict[str, list[str]]:
    """``os.getenv("X", "0") == "1"`` or ``in ("1", "true")``: any other value is off, and nothing says so."""
    words: set[str] = set()
    for node in ast.walk(getter):
        if (
            isinstance(node, ast.Compare)
            and isinstance(node.ops[0], ast.Eq | ast.In)
            and "env" in ast.unparse(node.left)
        ):
            value = _literal(node.comparators[0])
            words |= {value} if isinstance(value, str) else set(value or ())
    return {"true": sorted(words)} if words else {}


def _argument(call: ast.Call, place: int, name: str) -> ast.expr | None:
    if len(call.args) > place:
        return call.args[place]
    return next((one.value for one in call.keywords if one.arg == name), None)


def _literal(node: ast.expr | None) -> Any:
    try:
        return ast.literal_eval(node) if node else None
    except ValueError:
        return None  # a function that makes the list when it is asked
