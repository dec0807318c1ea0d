"""Dataclasses to JSON and back, for the shapes that travel between control machine and agent."""

import json
import re
import sys
import types
from dataclasses import MISSING, asdict, fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

#: C0 and C1 controls but tab and line feed, what turns the direction of writing, and halves of surrogate pairs.
_ILLEGIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class WireError(ValueError):
    """JSON that is not of the shape it should be; the message names the field."""


def encode(value: object) -> str:
    """One line of ASCII JSON: it survives any locale and any shell on the way."""
    assert is_dataclass(value) and not isinstance(value, type)
    return json.dumps(asdict(value), separators=(",", ":"), ensure_ascii=True)


def tell(value: object) -> str:
    """The same for what is said of a host: a control character or half a character in it, of a name or of an answer,
    must reach neither a terminal nor a file of UTF-8.
    """
    assert is_dataclass(value) and not isinstance(value, type)
    return json.dumps(_legible(asdict(value)), separators=(",", ":"), ensure_ascii=True)


def legible(text: str) -> str:
    """``text`` with a mark in place of every character that a terminal would obey, or that is none."""
    return _ILLEGIBLE.sub("\ufffd", text)


def _legible(value: Any) -> Any:
    if isinstance(value, str):
        return legible(value)
    if isinstance(value, dict):
        return {legible(str(key)): _legible(part) for key, part in value.items()}
    return [_legible(part) for part in value] if isinstance(value, (list, tuple)) else value


def decode(shape: type[T], text: str) -> T:
    """Rebuild a ``shape`` from ``encode``'s text.

    Raises WireError when a field is missing, unknown or of another type.
    """
    try:
        return build(shape, json.loads(text))
    except json.JSONDecodeError as error:
        raise WireError(f"{shape.__name__}: not JSON ({error})") from None
    except RecursionError:
        raise WireError(f"{shape.__name__}: nested too deeply") from None


def build(shape: type[T], value: object) -> T:
    """Rebuild a ``shape`` from plain dictionaries and lists."""
    result: T = _build(shape, value, shape.__name__, exact=True)
    return result


def recall(shape: type[T], value: object) -> T:
    """Rebuild a ``shape`` that another version of sparkfleet wrote down: a field that is unknown now is left out, one
    that is missing has its default.

    Raises WireError when one without a default is missing, or one is of another type.
    """
    result: T = _build(shape, value, shape.__name__, exact=False)
    return result


def _build(shape: Any, value: Any, where: str, exact: bool) -> Any:
    origin = get_origin(shape)
    if origin in (Union, types.UnionType):
        return None if value is None else _build(_only(shape), value, where, exact)
    if origin is Literal:
        return _check(value in get_args(shape), value, where, f"one of {get_args(shape)}")
    if origin is tuple:
        _check(isinstance(value, list), value, where, "a list")
        return tuple(_build(get_args(shape)[0], item, f"{where}[{i}]", exact) for i, item in enumerate(value))
    if origin is dict:
        _check(isinstance(value, dict), value, where, "an object")
        inner = get_args(shape)[1]
        return {str(key): _build(inner, item, f"{where}.{key}", exact) for key, item in value.items()}
    if is_dataclass(shape):
        return _dataclass(shape, value, where, exact)
    if shape is Any:
        return value
    if shape is float and type(value) in (int, float):
        _check(abs(value) <= sys.float_info.max, value, where, "a finite number")
        return float(value)
    return _check(type(value) is shape, value, where, shape.__name__)


def _dataclass(shape: Any, value: Any, where: str, exact: bool) -> Any:
    _check(isinstance(value, dict), value, where, "an object")
    hints = _fields(shape)
    odd = sorted(value.keys() ^ hints.keys() if exact else _needed(shape) - value.keys())
    if odd:
        raise WireError(f"{where}: missing or unknown field {', '.join(odd)}")
    known = (name for name in hints if name in value)
    return shape(**{name: _build(hints[name], value[name], f"{where}.{name}", exact) for name in known})


@cache
def _fields(shape: Any) -> dict[str, Any]:
    """Name and type of each field; kept, for working them out takes longer than all the rest."""
    hints = get_type_hints(shape)
    return {one.name: hints[one.name] for one in fields(shape)}


def _needed(shape: Any) -> set[str]:
    """The fields without a default."""
    return {one.name for one in fields(shape) if one.default is MISSING and one.default_factory is MISSING}


def _only(shape: Any) -> Any:
    (member,) = (arg for arg in get_args(shape) if arg is not type(None))
    return member


def _check(good: bool, value: Any, where: str, wanted: str) -> Any:
    if not good:
        raise WireError(f"{where}: expected {wanted}, found {value!r:.80}")
    return value
