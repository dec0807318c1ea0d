"""One way to read a YAML file of the catalog: whole, typed, and with the line of whatever is wrong in it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from sparkfleet.agent.secrecy import holds_secret
from sparkfleet.errors import UserError

M = TypeVar("M", bound=BaseModel)

#: The catalog that ships with sparkfleet; it lies beside the package in a checkout.
CATALOG = Path(__file__).resolve().parents[2] / "catalog"

#: libyaml's where PyYAML was built with it: ten times faster, and the catalog is read at every run.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_MAX_FILE_BYTES = 4 * 1024 * 1024

#: Values of a file, those that are repeated by an alias counted each time: a few lines can stand for billions.
_MOST_VALUES = 1_000_000


class Strict(BaseModel):
    """What a file of the catalog holds: unknown keys are refused, and nothing is changed once it was read."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True)
class Document:
    """A YAML file that was read: its plain values, and the nodes, which know their lines."""

    path: Path
    node: yaml.Node | None
    content: object

    def validate(self, model: type[M]) -> M:
        """The content as one ``model``. Raises UserError naming file, line, key, value and what is allowed there."""
        try:
            return model.model_validate(self.content)
        except ValidationError as error:
            raise UserError(describe(self.path, self.node, model, error.errors())) from None

    def line(self, *keys: int | str) -> int:
        """The line of the deepest part of ``keys`` that is really there."""
        return _line(self.node, keys)


def load(path: Path, model: type[M]) -> M:
    """Read ``path`` as one ``model``.

    Raises UserError naming file, line, key, the value found and what is allowed there.
    """
    return read(path).validate(model)


def read(path: Path) -> Document:
    """Read ``path``. Raises UserError when it is not one YAML document, or gives a key twice."""
    return Document(path, *_read(path))


def describe(path: Path, document: yaml.Node | None, model: type[BaseModel], errors: Sequence[ErrorDetails]) -> str:
    """Every finding of pydantic as ``file:line: key: what``, one a line."""
    return "\n".join(_finding(path, document, model, error) for error in errors[:10])


def _text(path: Path) -> str:
    try:
        size = path.stat().st_size
        if size > _MAX_FILE_BYTES:
            raise UserError(f"{path}: {size} bytes; a catalog file has at most {_MAX_FILE_BYTES}.")
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 (byte {error.start}); save the file as UTF-8.") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}.") from None


def _read(path: Path) -> tuple[yaml.Node | None, object]:
    """The document as nodes, which know their lines, and as plain values."""
    loader = _LOADER(_text(path))
    try:
        node = loader.get_single_node()
        if node is not None:
            _refuse_doubled_keys(path, node)
            if _count(node, {}) > _MOST_VALUES:
                raise ValueError("its aliases repeat values without end")
        return node, loader.construct_document(node) if node is not None else None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        # ValueError: PyYAML lets impossible dates and enormous integers through to their constructors.
        raise UserError(f"{path}: not readable as YAML ({_one_line(error)}).") from None
    finally:
        loader.dispose()


def _refuse_doubled_keys(path: Path, node: yaml.Node) -> None:
    # YAML keeps the last of two equal keys and says nothing: the first is then silently without effect.
    for mapping in _mappings(node):
        seen: dict[str, int] = {}
        for key, _ in mapping.value:
            line = key.start_mark.line + 1
            name = str(key.value)
            if name in seen:
                raise UserError(f"{path}:{line}: key {name!r} is given twice (first on line {seen[name]}).")
            seen[name] = line


def _mappings(root: yaml.Node) -> Iterator[yaml.MappingNode]:
    # Each node once: aliases may share nodes thousandfold, or contain themselves.
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            yield node
            waiting.extend(value for _, value in node.value)
        elif isinstance(node, yaml.SequenceNode):
            waiting.extend(node.value)


def _count(node: yaml.Node, known: dict[int, int]) -> int:
    """How many values a node stands for; too many for one that contains itself."""
    if id(node) not in known:
        known[id(node)] = _MOST_VALUES + 1  # until it is known
        parts = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
        inner = parts if isinstance(node, yaml.CollectionNode) else ()
        known[id(node)] = 1 + sum(_count(part, known) for part in inner)
    return known[id(node)]


def _finding(path: Path, document: yaml.Node | None, model: type[BaseModel], error: ErrorDetails) -> str:
    key = ".".join(str(part) for part in error["loc"]) or "(whole file)"
    line = _line(document, error["loc"])
    what = error["msg"].removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        what = f"unknown key{_suggest(str(error['loc'][-1]), _at(model, error['loc'][:-1]))}"
    elif error["type"] != "missing":
        named = str(error["loc"][-1]) if error["loc"] else ""
        hidden = holds_secret(named, error["input"])
        what = f"{what}; found {'what looks like a secret' if hidden else _short(error['input'])}"
    return f"{path}:{line}: {key}: {what}."


def _at(model: type[BaseModel], loc: tuple[int | str, ...]) -> type[BaseModel] | None:
    """The model that describes the place ``loc`` below ``model``; None where that is not one model."""
    for part in loc:
        if isinstance(part, int):
            continue  # an entry of a sequence: described by what the sequence holds
        field = model.model_fields.get(part)
        found = list(_models(field.annotation)) if field else []
        if len(found) != 1:
            return None
        model = found[0]
    return model


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _suggest(name: str, model: type[BaseModel] | None) -> str:
    known = sorted(model.model_fields) if model else []
    near = get_close_matches(name, known, n=1)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; allowed: {', '.join(known)}" if known else ""


def _line(node: yaml.Node | None, loc: tuple[int | str, ...]) -> int:
    """The line of the deepest part of ``loc`` that the document really has."""
    line = 1
    for part in loc:
        if isinstance(node, yaml.MappingNode):
            found = next(((k, v) for k, v in node.value if str(k.value) == str(part)), None)
            if found is None:
                return line
            line, node = found[0].start_mark.line + 1, found[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
        # else: a part that pydantic adds (a union's member, a validator): it has no line of its own
    return line


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]
