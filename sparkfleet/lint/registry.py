"""Every rule by its id. A rule's docstring is its documentation: what it finds, why, and the source of the fact."""

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from sparkfleet.lint.case import Case
from sparkfleet.lint.findings import Severity, Trouble

Check = Callable[[Case], Iterator[Trouble]]
Family = Literal["environment", "flags", "kernels", "memory", "model", "serving", "recipe"]

_PARTS = re.compile(r"\A(?P<what>.+?)\n\nWhy: (?P<why>.+?)\n\nSource: (?P<source>.+)\Z", re.DOTALL)


@dataclass(frozen=True)
class Rule:
    """One rule. ``waivable``: always, only on engines that nobody has read, or never.

    ``instead``: rules that say less about the same place, and are silent when this one speaks.
    """

    id: str
    family: Family
    severity: Severity
    check: Check
    what: str
    why: str
    source: str
    waivable: Literal["yes", "unread", "no"] = "yes"
    instead: tuple[str, ...] = ()

    def may_be_waived(self, case: Case) -> bool:
        """Whether a recipe may live with what it finds."""
        return self.waivable == "yes" or (self.waivable == "unread" and case.known is None)


RULES: dict[str, Rule] = {}


def sentence(text: str) -> str:
    """With a capital, unless it begins with a name."""
    first = text.split(" ")[0]
    named = first.startswith(("-", "`", "vLLM")) or "_" in first or "-" in first or first.endswith(":")
    return text if named else text[:1].upper() + text[1:]


def rule(
    identity: str,
    severity: Severity,
    waivable: Literal["yes", "unread", "no"] = "yes",
    instead: tuple[str, ...] = (),
) -> Callable[[Check], Check]:
    """Register a function as a rule of its module's family."""

    def register(check: Check) -> Check:
        family = check.__module__.rsplit(".", 1)[1]
        RULES[identity] = described(identity, family, severity, check, waivable, instead)  # type: ignore[arg-type]
        return check

    return register


def described(
    identity: str,
    family: Family,
    severity: Severity,
    documented: Callable[..., object],
    waivable: Literal["yes", "unread", "no"] = "yes",
    instead: tuple[str, ...] = (),
    check: Check | None = None,
) -> Rule:
    """A rule whose words are in the docstring of ``documented``. Raises ValueError when a part of them is missing."""
    parts = _PARTS.match(inspect.getdoc(documented) or "")
    if not parts:
        raise ValueError(f"rule {identity}: expected a docstring of three parts: what, `Why: `, `Source: `")
    what, why, source = (sentence(" ".join(parts[name].split())) for name in ("what", "why", "source"))
    return Rule(identity, family, severity, check or documented, what, why, source, waivable, instead)  # type: ignore[arg-type]
