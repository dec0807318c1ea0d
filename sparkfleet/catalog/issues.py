"""Known issues, as ``catalog/issues.yaml``: rules on facts, checked against the types of the facts before use.

    - id: driver-too-old
      severity: stop                            # stop: nothing is changed; warn; info: only shown by tasks/status.py
      when:                                     # all of it
        gpu.driver: {older: $needs.driver_minimum}
        any:                                    # and one of these
          - {lab: {unknown: true}}
      what: "driver: expected {needs.driver_minimum} or newer, found {gpu.driver}"
      remedy: ...
      source: ...

A fact is a path through the dataclasses of ``sparkfleet.agent.checks.preflight.Case``; ``$`` before one makes it a
value.
Nothing is ever run: a rule is compared, not evaluated.
"""

import re
import types
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import Field

from sparkfleet.agent.checks import rules as evaluator
from sparkfleet.agent.checks.preflight import Case
from sparkfleet.agent.shapes import Clause, Condition, Operator, Rule, Severity
from sparkfleet.catalog.yaml import CATALOG, Document, Strict, read
from sparkfleet.errors import UserError

ISSUES = CATALOG / "issues.yaml"

T = TypeVar("T")


class Issue(Strict):
    """One rule as it stands in the file."""

    id: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    severity: Severity
    each: str | None = None
    when: dict[str, Any] = Field(min_length=1)
    what: str = Field(pattern=r"^[^\r\n]+$")
    remedy: str = Field(pattern=r"^[^\r\n]+$")
    source: str = Field(min_length=1)


class _Issues(Strict):
    rules: tuple[Issue, ...]


class _Wrong(Exception):
    """Something in a rule that cannot be; ``keys`` is where below the rule."""

    def __init__(self, what: str, *keys: int | str) -> None:
        super().__init__(what)
        self.keys = keys


def issues(path: Path = ISSUES) -> tuple[Issue, ...]:
    """Every known issue. Raises UserError naming file and line when a rule speaks of what there is not."""
    return _load(path)[0]


@cache
def rules(path: Path = ISSUES) -> tuple[Rule, ...]:
    """The issues in the shape that the agent takes. Raises UserError as ``issues`` does."""
    return _load(path)[1]


def _load(path: Path) -> tuple[tuple[Issue, ...], tuple[Rule, ...]]:
    document = read(path)
    found = document.validate(_Issues).rules
    seen: set[str] = set()
    checked = []
    for number, issue in enumerate(found):
        try:
            if issue.id in seen:
                raise _Wrong(f"id {issue.id} is given twice", "id")
            seen.add(issue.id)
            checked.append(_rule(issue))
        except _Wrong as wrong:
            raise _error(document, number, issue, wrong) from None
    return found, tuple(checked)


def _error(document: Document, number: int, issue: Issue, wrong: _Wrong) -> UserError:
    line = document.line("rules", number, *wrong.keys)
    return UserError(f"{document.path}:{line}: {issue.id}: {wrong}.")


def _rule(issue: Issue) -> Rule:
    each = None if issue.each is None else _member(issue.each)
    when = _condition(issue.when, each, ("when",))
    for key, text in (("what", issue.what), ("remedy", issue.remedy)):
        for place in evaluator.PLACE.finditer(text):
            kind = _type(place[1], each, key)
            if place[2] and kind is not int:
                raise _Wrong(f"{place[0]}: only a number of bytes can be shown in GiB", key)
        if re.search(r"[{}]", evaluator.PLACE.sub("", text)):
            raise _Wrong("a brace that is no fact, like {gpu.driver}", key)
    return Rule(issue.id, issue.severity, issue.each, when, issue.what.strip(), issue.remedy.strip())


def _condition(given: Mapping[str, Any], each: Any, where: tuple[int | str, ...]) -> Condition:
    clauses: list[Clause] = []
    some: list[Condition] = []
    for fact, asked in given.items():
        here = (*where, fact)
        if fact == "any":
            if not isinstance(asked, list) or not all(isinstance(one, dict) and one for one in asked) or not asked:
                raise _Wrong("any: expected a list of conditions", *here)
            some = [_condition(one, each, (*here, index)) for index, one in enumerate(asked)]
        elif not isinstance(asked, dict) or not asked:
            raise _Wrong(f"{fact}: expected an operator and a value, like {{is: ok}}", *here)
        else:
            clauses += (_clause(fact, operator, value, each, (*here, operator)) for operator, value in asked.items())
    return Condition(tuple(clauses), tuple(some))


def _clause(fact: str, operator: Operator, value: Any, each: Any, where: tuple[int | str, ...]) -> Clause:
    if operator not in get_args(Operator):
        raise _Wrong(f"{fact}: unknown operator {operator!r}; there are {', '.join(get_args(Operator))}", *where)
    kind = _type(fact, each, *where[:-1])
    wanted = _wanted(kind, operator)
    if wanted is None:
        raise _Wrong(f"{fact} is {_name(kind)}: {operator!r} cannot be asked of it", *where)
    if isinstance(value, str) and value.startswith("$"):
        other = _type(value[1:], each, *where)
        if operator in ("unknown", "empty", "matches") or not _same(other, wanted):
            raise _Wrong(f"{fact} is {_name(kind)} and {value[1:]} is {_name(other)}: they cannot be compared", *where)
    elif not _fits(value, wanted):
        raise _Wrong(f"{fact}: expected {_name(wanted)} after {operator!r}, found {value!r}", *where)
    if operator == "matches":
        try:
            re.compile(value)
        except re.error as error:
            raise _Wrong(f"{fact}: no regular expression: {error}", *where) from None
    return Clause(fact, operator, value)


def _wanted(kind: Any, operator: str) -> Any:
    """The type of value that ``operator`` takes with a fact of type ``kind``; None if it cannot be asked of it."""
    text = kind is str or get_origin(kind) is Literal
    plain = text or kind in (int, float, bool)
    if operator == "unknown":
        return bool
    if operator in ("is", "is_not"):
        return kind if plain else None
    if operator in ("in", "not_in"):
        return list[kind] if plain else None
    if operator in ("below", "above"):
        return float if kind in (int, float) else None
    if operator in ("has", "lacks"):
        return _element(kind)
    if operator == "empty":
        return bool if get_origin(kind) in (tuple, dict) else None
    return str if text else None


def _element(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) in (tuple, dict) and not is_dataclass(get_args(kind)[0]) else None


def _fits(value: Any, kind: Any) -> bool:
    if get_origin(kind) is list:
        return isinstance(value, list) and bool(value) and all(_fits(one, get_args(kind)[0]) for one in value)
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if kind is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return type(value) is kind


def _same(found: Any, wanted: Any) -> bool:
    if get_origin(wanted) is list:
        return get_origin(found) in (tuple, dict) and get_args(found)[0] is get_args(wanted)[0]
    return found is wanted or (wanted is float and found is int)


def _type(path: str, each: Any, *where: int | str) -> Any:
    """The type of the fact at ``path`` where it is known."""
    head, *rest = path.split(".")
    if head == "each":
        if each is None:
            raise _Wrong(f"{path}: the rule has no `each`", *where)
        kind = each
    else:
        kind, rest = Case, [head, *rest]
    so_far = "" if kind is Case else "each"
    for name in rest:
        hints = {one.name: get_type_hints(kind)[one.name] for one in fields(kind)} if is_dataclass(kind) else {}
        if name not in hints:
            known = f"there are {', '.join(sorted(hints))}" if hints else "it has no parts"
            raise _Wrong(f"{path}: no such fact{f' in {so_far}' if so_far else ''}; {known}", *where)
        so_far, kind = f"{so_far}.{name}".lstrip("."), _known(hints[name])
    return kind


def _member(path: str) -> Any:
    kind = _type(path, None, "each")
    if get_origin(kind) is not tuple:
        raise _Wrong(f"{path} is {_name(kind)}, no list", "each")
    return get_args(kind)[0]


def _known(kind: Any) -> Any:
    """A type without its None."""
    if get_origin(kind) in (Union, types.UnionType):
        (kind,) = (one for one in get_args(kind) if one is not type(None))
    return kind


def _name(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(repr, get_args(kind)))}"
    if get_origin(kind) is list:
        return f"a list of {_name(get_args(kind)[0])}"
    words = {str: "a text", int: "a number", float: "a number", bool: "true or false"}
    return words.get(kind, "a list" if get_origin(kind) in (tuple, dict) else "a group of facts")


def facts() -> Iterator[tuple[str, str]]:
    """Every fact a rule may name, with its type in words."""
    yield from _facts(Case, "")


def _facts(kind: Any, prefix: str) -> Iterator[tuple[str, str]]:
    hints = get_type_hints(kind)
    for one in fields(kind):
        inner = _known(hints[one.name])
        if is_dataclass(inner):
            yield from _facts(inner, f"{prefix}{one.name}.")
        else:
            yield f"{prefix}{one.name}", _name(inner)
