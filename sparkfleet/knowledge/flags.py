"""The flags of ``vllm serve``: what its argument parser is told, followed from ``make_arg_parser`` on.

vLLM derives most flags from the fields of its configuration classes (``get_kwargs``); what is here derives the same
from the syntax tree.
"""

import ast
from dataclasses import dataclass, field
from typing import Any

from sparkfleet.errors import UserError
from sparkfleet.knowledge.hints import Hint, hint
from sparkfleet.knowledge.source import Found, Function, Source

#: the command ``vllm serve``; the module of its parser moved thrice from 0.17 to 0.33, and is imported here
_COMMAND = "vllm.entrypoints.cli.serve"


def flags(source: Source) -> dict[str, dict[str, Any]]:
    """Each flag by its long name, with ``type``, and where they are:

    ``choices``; ``open``: others are accepted too; ``loose``: compared without case, ``-`` as ``_``; ``many``: it takes
    several values; ``keys``: all that a ``json`` may have; ``aliases``; ``deprecated``. Types: ``switch`` takes no
    value, ``bool`` none either but has a ``--no-`` form, ``json``, ``int``, ``float``, ``str``. Raises UserError when
    the parser is not found.
    """
    made = next((one for one in source.find(_COMMAND, "make_arg_parser") if isinstance(one.node, Function)), None)
    if made is None:
        raise UserError(
            f"{_COMMAND}: expected a function make_arg_parser there or imported; its flags are made elsewhere."
        )
    reader = _Reader(source)
    reader.function(made, None)
    return reader.found


@dataclass
class _Kwargs:
    """A variable that holds what ``get_kwargs`` gave: of a class, or of one of its fields."""

    owner: Found
    field: str | None = None


@dataclass
class _Scope:
    """A function being read: its module, the class it was called on, its variables, what it changes for a field."""

    module: str
    owner: Found | None
    variables: dict[str, _Kwargs] = field(default_factory=dict)
    changed: dict[tuple[str, str], ast.expr | None] = field(default_factory=dict)
    removed: dict[str, list[object]] = field(default_factory=dict)


class _Reader:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.found: dict[str, dict[str, Any]] = {}

    def function(self, made: Found, owner: Found | None) -> None:
        assert isinstance(made.node, Function)
        self._body(_Scope(made.module, owner), made.node.body)

    def _body(self, scope: _Scope, body: list[ast.stmt]) -> None:
        for node in body:
            if isinstance(node, ast.If):
                self._body(scope, [*node.body, *node.orelse])
            elif isinstance(node, ast.With | ast.Try):
                self._body(scope, node.body)
            elif isinstance(node, ast.For):
                self._loop(scope, node)
            elif isinstance(node, ast.Assign):
                self._assign(scope, node)
            elif isinstance(node, ast.AugAssign):
                self._change(scope, node.target, None)
            elif isinstance(node, ast.Delete):
                for target in node.targets:
                    self._change(scope, target, None)
            elif isinstance(node, ast.Expr | ast.Return) and isinstance(node.value, ast.Call):
                self._call(scope, node.value)

    def _assign(self, scope: _Scope, node: ast.Assign) -> None:
        (target,) = node.targets
        if isinstance(target, ast.Name):
            if kwargs := self._kwargs(scope, node.value):
                scope.variables[target.id] = kwargs
            elif isinstance(node.value, ast.Call):
                self._call(scope, node.value)
        else:
            self._change(scope, target, node.value)

    def _kwargs(self, scope: _Scope, node: ast.expr) -> _Kwargs | None:
        """What an expression has of ``get_kwargs``, if anything."""
        if isinstance(node, ast.Name):
            return scope.variables.get(node.id)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            of = self._kwargs(scope, node.value)
            return _Kwargs(of.owner, str(node.slice.value)) if of and of.field is None else None
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id == "get_kwargs":
                owner = self._class(scope, node.args[0])
                return _Kwargs(owner) if owner else None
            if isinstance(node.func, ast.Attribute) and node.func.attr == "_customize_cli_kwargs":
                return self._customised(scope, node)
        return None

    def _customised(self, scope: _Scope, node: ast.Call) -> _Kwargs | None:
        kwargs = self._kwargs(scope, node.args[0])
        assert isinstance(node.func, ast.Attribute)
        if kwargs is None or isinstance(node.func.value, ast.Call):
            return kwargs  # super()'s own has been read, because bases are read first
        for above in reversed(list(self.source.lineage(kwargs.owner))):
            method = _method(above, "_customize_cli_kwargs")
            if method:
                scope.variables[method.args.args[1].arg] = kwargs
                self._body(scope, [one for one in method.body if not isinstance(one, ast.Return)])
        return kwargs

    def _class(self, scope: _Scope, node: ast.expr) -> Found | None:
        if not isinstance(node, ast.Name):
            return None
        return scope.owner if node.id == "cls" else self.source.find_class(scope.module, node.id)

    def _change(self, scope: _Scope, target: ast.expr, value: ast.expr | None) -> None:
        """``model_kwargs["field"]["type"] = value``, or ``+=`` or ``del`` of it (None)."""
        if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
            kwargs = self._kwargs(scope, target.value)
            if kwargs and kwargs.field:
                scope.changed[kwargs.field, str(target.slice.value)] = value

    def _loop(self, scope: _Scope, node: ast.For) -> None:
        """``for key, value in kwargs.items(): group.add_argument(f"--{key}", **value)``: a flag for each field."""
        call = node.iter
        kwargs = None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "items":
            kwargs = self._kwargs(scope, call.func.value)
        if kwargs is None:
            self._body(scope, node.body)
            return
        for name in self._fields(kwargs.owner):
            self._add(scope, [f"--{name.replace('_', '-')}"], self._of_field(scope, _Kwargs(kwargs.owner, name)))

    def _call(self, scope: _Scope, call: ast.Call) -> None:
        if not isinstance(call.func, ast.Attribute):
            return
        if call.func.attr == "remove":
            self._remove(scope, call.func.value, call.args[0])
        if call.func.attr == "add_argument":
            self._argument(scope, call)
        elif call.func.attr == "add_cli_args" and (owner := self._class(scope, call.func.value)):
            for above in self.source.lineage(owner):
                if method := _method(above, "add_cli_args"):
                    self.function(Found(above.module, method), owner)
                    return

    def _remove(self, scope: _Scope, target: ast.expr, what: ast.expr) -> None:
        """``kwargs["field"]["choices"].remove(what)``: for the command line, the field has one choice less."""
        if isinstance(target, ast.Subscript) and ast.unparse(target.slice) == "'choices'":
            kwargs = self._kwargs(scope, target.value)
            if kwargs and kwargs.field and (value := self._constant(scope, what)) is not None:
                scope.removed.setdefault(kwargs.field, []).append(value)

    def _constant(self, scope: _Scope, node: ast.expr) -> object:
        if isinstance(node, ast.Constant):
            return node.value
        for one in self.source.find(scope.module, node.id) if isinstance(node, ast.Name) else []:
            if isinstance(one.node, ast.Assign | ast.AnnAssign) and isinstance(one.node.value, ast.Constant):
                return one.node.value.value
        return None

    def _choices(self, scope: _Scope, node: ast.expr) -> ast.expr:
        """``get_args(Alias)`` as the list that it gives; any other expression as it is."""
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "get_args":
            values = hint(self.source, scope.module, node.args[0]).literals
            return ast.List([ast.Constant(value) for value in values], ast.Load())
        return node

    def _argument(self, scope: _Scope, call: ast.Call) -> None:
        names = [str(one.value) for one in call.args if isinstance(one, ast.Constant)]
        if not names or not names[0].startswith("-"):
            return  # the model, which has no flag
        row: dict[str, Any] = {}
        given: dict[str, ast.expr | None] = {}
        for keyword in call.keywords:
            if keyword.arg is not None:
                given[keyword.arg] = self._choices(scope, keyword.value)
            else:
                row |= self._spread(scope, keyword.value)
        self._add(scope, names, _adjusted(row, given))

    def _spread(self, scope: _Scope, node: ast.expr) -> dict[str, Any]:
        """What ``**kwargs["field"]`` brings, or ``**{**kwargs["field"], "default": None}``."""
        if isinstance(node, ast.Dict):
            parts = (self._spread(scope, value) for key, value in zip(node.keys, node.values, strict=True) if not key)
            return {key: value for part in parts for key, value in part.items()}
        kwargs = self._kwargs(scope, node)
        return self._of_field(scope, kwargs) if kwargs else {}

    def _add(self, scope: _Scope, names: list[str], row: dict[str, Any]) -> None:
        long = max(names, key=lambda name: (name.startswith("--"), -names.index(name)))
        if others := sorted(set(names) - {long}):
            row["aliases"] = others
        self.found[long] = {"type": "str"} | row

    def _fields(self, owner: Found) -> dict[str, tuple[str, ast.expr]]:
        """Module and annotation of each field of a class and its bases."""
        found: dict[str, tuple[str, ast.expr]] = {}
        for one in self.source.lineage(owner):
            assert isinstance(one.node, ast.ClassDef)
            for node in one.node.body:
                if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                    found.setdefault(node.target.id, (one.module, node.annotation))
        return found

    def _of_field(self, scope: _Scope, kwargs: _Kwargs) -> dict[str, Any]:
        assert kwargs.field
        there = self._fields(kwargs.owner).get(kwargs.field)
        if there is None:
            name = kwargs.owner.node.name if isinstance(kwargs.owner.node, ast.ClassDef) else ""
            raise UserError(f"{kwargs.owner.module}: {name} has no field {kwargs.field}, which a flag is made from.")
        row = _of_hint(hint(self.source, *there))
        if removed := scope.removed.get(kwargs.field):
            row["choices"] = [one for one in row["choices"] if one not in removed]
        return _adjusted(row, {key: value for (name, key), value in scope.changed.items() if name == kwargs.field})


def _of_hint(of: Hint) -> dict[str, Any]:
    """What vLLM's ``get_kwargs`` makes of a type, in its order of precedence."""
    if "bool" in of.plain:
        return {"type": "str", "open": True} if "str" in of.plain else {"type": "bool"}
    if of.json and not of.literals and not of.collections and "str" not in of.plain:
        return {"type": "json"} | ({"keys": sorted(of.keys)} if of.keys and not of.any_key else {})
    if of.literals:
        row: dict[str, Any] = {"type": type(of.literals[0]).__name__, "choices": _sorted(of.literals)}
        return row | ({"open": True} if "str" in of.plain or of.checked_only else {})
    if of.members:
        row = {"type": "str", "choices": sorted(of.members), "loose": True}
        return row | ({"open": True} if of.checked_only else {})
    if of.collections:
        inner = _of_hint(of.collections[0])
        return inner | {"many": True} if inner["type"] != "json" else {"type": "str", "many": True}
    return {"type": next((name for name in ("int", "float") if name in of.plain), "str")}


def _adjusted(row: dict[str, Any], given: dict[str, ast.expr | None]) -> dict[str, Any]:
    """A row with what is said of it by hand: ``type=``, ``action=``, ``nargs=``, ``choices=``, ``deprecated=``."""
    row = dict(row)
    for key, value in sorted(given.items(), key=lambda item: item[0] != "nargs"):
        text = ast.unparse(value) if value else ""
        if key == "type":
            if ".lower()" in text:
                row["loose"] = True
            elif "json" in text:
                row["type"] = "json"
            elif not row:
                row["type"] = text if text in ("int", "float") else "str"
        elif key == "action" and "BooleanOptionalAction" in text:
            row["type"] = "bool"
        elif key == "action" and "store_true" in text:
            row["type"] = "switch"
        elif key == "action" and "append" in text:
            row["many"] = True
        elif key == "nargs":
            row.pop("many", None)
            if text in ("'+'", "'*'"):
                row["many"] = True
        elif key == "choices" and value is None:
            row["open"] = True  # more are added by a computation
        elif key == "choices" and isinstance(value, ast.List | ast.Tuple):
            row["choices"] = _sorted([ast.literal_eval(one) for one in value.elts])
        elif key == "choices" and isinstance(value, ast.BinOp) and isinstance(value.left, ast.List):
            row["choices"] = _sorted([ast.literal_eval(one) for one in value.left.elts])
            row["open"] = True  # and what this machine has
        elif key == "deprecated" and text == "True":
            row["deprecated"] = True
    return row


def _sorted(values: list[Any]) -> list[Any]:
    return sorted(values, key=lambda one: (isinstance(one, str), one))


def _method(found: Found, name: str) -> Function | None:
    assert isinstance(found.node, ast.ClassDef)
    return next((one for one in found.node.body if isinstance(one, Function) and one.name == name), None)
