"""Type hints as values: what an annotation allows, aliases and imports resolved."""

import ast
from dataclasses import dataclass, field

from sparkfleet.knowledge.source import Found, Source

_LISTS = {"list", "set", "tuple", "Sequence", "List", "Set", "Tuple", "Iterable"}
_DICTS = {"dict", "Dict", "Mapping"}
_PLAIN = {"bool", "int", "float", "str", "bytes"}


@dataclass
class Hint:
    """The union of an annotation's parts.

    ``plain``: names of built-in types and of classes that are none of the others. ``literals``: values of ``Literal``.
    ``checked_only``: what runs takes others than these literals or members too. ``members``: of an enumeration.
    ``json``: a data class or dictionary, written as JSON; ``keys``: those of the data classes, ``any_key`` when there
    are dictionaries too. ``collections``: a hint for the elements of each.
    """

    plain: set[str] = field(default_factory=set)
    literals: list[str | int | float | bool] = field(default_factory=list)
    checked_only: bool = False
    members: list[str] = field(default_factory=list)
    json: bool = False
    keys: set[str] = field(default_factory=set)
    any_key: bool = False
    collections: "list[Hint]" = field(default_factory=list)

    def add(self, other: "Hint") -> None:
        """Take the parts of another hint in."""
        self.plain |= other.plain
        self.literals += [one for one in other.literals if one not in self.literals]
        self.checked_only |= other.checked_only
        self.members += [one for one in other.members if one not in self.members]
        self.json |= other.json
        self.keys |= other.keys
        self.any_key |= other.any_key
        self.collections += other.collections


def hint(source: Source, module: str, node: ast.expr) -> Hint:
    """What the annotation ``node`` of ``module`` allows."""
    return _Reader(source).read(module, node)


class _Reader:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.within: set[tuple[str, str]] = set()

    def read(self, module: str, node: ast.expr) -> Hint:
        found = Hint()
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                return self.read(module, ast.parse(node.value, mode="eval").body)
            found.plain.add("None")
        elif isinstance(node, ast.BinOp):
            found.add(self.read(module, node.left))
            found.add(self.read(module, node.right))
        elif isinstance(node, ast.Subscript):
            found.add(self._subscript(module, _last(node.value), node.slice))
        elif isinstance(node, ast.Name | ast.Attribute):
            found.add(self._name(module, _last(node)))
        return found

    def _subscript(self, module: str, name: str, inner: ast.expr) -> Hint:
        parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
        found = Hint()
        if name == "Literal":
            for part in parts:
                if isinstance(part, ast.Constant):
                    if isinstance(part.value, str | int | float):
                        found.literals.append(part.value)
                else:
                    found.add(self.read(module, part))  # a literal of literals
        elif name in ("Optional", "Union"):
            for part in parts:
                found.add(self.read(module, part))
            found.plain |= {"None"} if name == "Optional" else set()
        elif name in ("Annotated", "ClassVar", "InitVar", "SkipValidation", "Required"):
            found.add(self.read(module, parts[0]))
        elif name in _LISTS:
            found.collections.append(self.read(module, parts[0]))
        elif name in _DICTS:
            found.json = found.any_key = True
        else:
            found.add(self._name(module, name))
        return found

    def _name(self, module: str, name: str) -> Hint:
        if name in _PLAIN:
            return Hint(plain={name})
        if name in _LISTS:
            return Hint(collections=[Hint(plain={"str"})])
        if name in _DICTS:
            return Hint(json=True, any_key=True)
        if (module, name) in self.within:
            return Hint()
        self.within.add((module, name))
        try:
            return self._defined(name, self.source.find(module, name))
        finally:
            self.within.discard((module, name))

    def _defined(self, name: str, definitions: list[Found]) -> Hint:
        found, opaque = Hint(), False
        for one in definitions:
            if isinstance(one.node, ast.ClassDef):
                found.add(self._class(one, one.node))
            elif isinstance(one.node, ast.Assign | ast.AnnAssign) and one.node.value is not None:
                part = self.read(one.module, one.node.value)
                opaque |= not part.literals and not part.collections and not part.json
                found.add(part)
        # `X = Literal[...]` for type checkers, and `X = str` or `X = Any` in the else that runs
        found.checked_only |= opaque and bool(found.literals)
        if not definitions:
            found.plain.add(name)
        return found

    def _class(self, found: Found, node: ast.ClassDef) -> Hint:
        bases = {_last(base) for one in self.source.lineage(found) for base in _bases(one.node)}
        if bases & {"Enum", "IntEnum", "StrEnum"}:
            members = [name for one in node.body for name in _member(one)]
            return Hint(members=members, checked_only="IntEnum" in bases)  # that is given by number too
        if any(_is_data(one) for one in node.decorator_list):
            return Hint(json=True, keys={name for one in self.source.lineage(found) for name in _fields(one.node)})
        if bases & {"dict", "TypedDict", "BaseModel"}:
            return Hint(json=True, any_key=True)
        return Hint(plain={node.name})


def _bases(node: ast.AST) -> list[ast.expr]:
    return node.bases if isinstance(node, ast.ClassDef) else []


def _fields(node: ast.AST) -> list[str]:
    """Names of a data class; class variables are among them, which are no keys, because no one writes these."""
    body = node.body if isinstance(node, ast.ClassDef) else []
    names = [one.target.id for one in body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)]
    return [name for name in names if not name.startswith("_")]


def _member(node: ast.stmt) -> list[str]:
    if not isinstance(node, ast.Assign):
        return []
    return [one.id for one in node.targets if isinstance(one, ast.Name) and not one.id.startswith("_")]


def _is_data(decorator: ast.expr) -> bool:
    return _last(decorator.func if isinstance(decorator, ast.Call) else decorator) in ("config", "dataclass")


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
