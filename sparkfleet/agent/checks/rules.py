"""Rules on facts: the one place where facts become a verdict. Pure.

The rules come with the question, as data; this evaluator is in the agent because a host that does not pass must not
even be given the agent, which is decided in the same exec that observes it. The control machine checks the rules
against the types of the facts before it sends them (``sparkfleet.catalog.issues``) and judges nothing itself.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..facts.source import version_key
from ..shapes import Clause, Condition, Finding, Rule

#: ``{gpu.driver}`` or ``{memory.total:GiB}`` in the texts of a rule.
PLACE = re.compile(r"\{([a-z0-9_.]+)(?::(GiB))?\}")

_GIB = 1024**3

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "is": lambda found, wanted: found == wanted,
    "is_not": lambda found, wanted: found != wanted,
    "in": lambda found, wanted: found in wanted,
    "not_in": lambda found, wanted: found not in wanted,
    "below": lambda found, wanted: found < wanted,
    "above": lambda found, wanted: found > wanted,
    "older": lambda found, wanted: version_key(found) < version_key(wanted),
    "newer": lambda found, wanted: version_key(found) > version_key(wanted),
    "matches": lambda found, wanted: re.search(wanted, found) is not None,
    "has": lambda found, wanted: wanted in found,
    "lacks": lambda found, wanted: wanted not in found,
    "empty": lambda found, wanted: (not found) == wanted,
}


def judge(rules: Iterable[Rule], case: object) -> tuple[Finding, ...]:
    """What ``rules`` find in ``case``, a dataclass of facts."""
    return tuple(finding for rule in rules for finding in _apply(rule, case))


def _apply(rule: Rule, case: object) -> Iterator[Finding]:
    members = (None,) if rule.each is None else fact(case, rule.each) or ()
    for each in members:
        if holds(rule.when, case, each):
            yield Finding(rule.id, rule.severity, fill(rule.what, case, each), fill(rule.remedy, case, each))


def holds(condition: Condition, case: object, each: object = None) -> bool | None:
    """Whether ``condition`` is true; None when facts that are unknown leave it open."""
    every = [_clause(one, case, each) for one in condition.clauses]
    if condition.any:
        some = [holds(one, case, each) for one in condition.any]
        every.append(True if True in some else None if None in some else False)
    return False if False in every else None if None in every else True


def _clause(clause: Clause, case: object, each: object) -> bool | None:
    found = fact(case, clause.fact, each)
    if clause.operator == "unknown":
        return (found is None) is bool(clause.value)
    wanted = clause.value
    if isinstance(wanted, str) and wanted.startswith("$"):
        wanted = fact(case, wanted[1:], each)
    return None if found is None or wanted is None else _OPERATORS[clause.operator](found, wanted)


def fact(case: object, path: str, each: object = None) -> Any:
    """The fact at ``path``, None when it or what it is part of is unknown."""
    head, *rest = path.split(".")
    value = each if head == "each" else getattr(case, head)
    for name in rest:
        value = None if value is None else getattr(value, name)
    return value


def fill(text: str, case: object, each: object = None) -> str:
    """``text`` with its facts filled in, in a person's words."""
    return PLACE.sub(lambda place: _words(fact(case, place[1], each), place[2]), text)


def _words(value: Any, unit: str | None) -> str:
    if value is None:
        return "unknown"
    if unit:
        return f"{value / _GIB:.1f}"
    if isinstance(value, (tuple, list, dict)):
        return ", ".join(sorted(map(str, value))) or "none"
    return f"{value:.0f}" if isinstance(value, float) else str(value)
