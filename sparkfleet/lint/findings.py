"""What a rule finds, and what a person reads of it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from sparkfleet.errors import UserError

Severity = Literal["error", "warning"]
Keys = tuple[str | int, ...]


@dataclass(frozen=True)
class Trouble:
    """What a rule says of one place in a recipe.

    ``keys``: the place, like ``("flags", "moe-backend")``. ``why``: only where it is another one than the rule's own.
    """

    keys: Keys
    what: str
    remedy: str
    why: str = ""


@dataclass(frozen=True)
class Finding:
    """A trouble with its rule and place. ``engines``: those on which it is so; ``waived``: the recipe's reason."""

    rule: str
    severity: Severity
    file: str
    line: int
    key: str
    engines: tuple[str, ...]
    what: str
    why: str
    remedy: str
    waived: str = ""

    @property
    def counts(self) -> bool:
        """Whether it is an error that nobody has waived."""
        return self.severity == "error" and not self.waived

    @property
    def place(self) -> str:
        """File and line, where the file has lines."""
        return f"{self.file}:{self.line}" if self.line else self.file

    def __str__(self) -> str:
        """One paragraph."""
        where = f" on {', '.join(self.engines)}" if self.engines else ""
        return f"{self.place}: {self.rule}{where}: {self.what} {self.why} Remedy: {self.remedy}"


class Unfit(UserError):
    """Recipes of a host have errors; ``findings`` are these."""

    def __init__(self, host: str, findings: Iterable[Finding]) -> None:
        self.findings = tuple(findings)
        super().__init__("\n".join(f"{host}: {one}" for one in self.findings))


def merged(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """What is the same on several engines is said once; in the order of the files."""
    found: dict[Finding, list[str]] = {}
    for one in findings:
        bare = Finding(**{**one.__dict__, "engines": ()})
        found.setdefault(bare, []).extend(engine for engine in one.engines if engine not in found.get(bare, []))
    together = (Finding(**{**one.__dict__, "engines": tuple(engines)}) for one, engines in found.items())
    return tuple(sorted(together, key=lambda one: (one.file, one.line, one.severity, one.rule, one.what)))
