"""Every rule on every engine of a recipe: the one way in, for the command line and for a deploy."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sparkfleet.catalog.engines import ENGINES, Engine, engine
from sparkfleet.catalog.overrides import Overrides
from sparkfleet.catalog.recipes import KnownBad, Recipe, entry
from sparkfleet.catalog.yaml import Document, read
from sparkfleet.errors import UserError
from sparkfleet.lint import environment, flags, kernels, memory, model, serving  # noqa: F401 they register rules
from sparkfleet.lint.case import Case
from sparkfleet.lint.findings import Finding, Keys, Trouble, merged
from sparkfleet.lint.recipe import ENGINE_UNKNOWN, KNOWN_BAD, PORT_TWICE, RECIPE_INVALID, WAIVER_WITHOUT_EFFECT
from sparkfleet.lint.registry import RULES, Rule, sentence

_PLACED = re.compile(r"^(?P<file>.+?):(?P<line>\d+): (?P<key>[^ ]+|\(whole file\)): (?P<what>.+)$")


@dataclass(frozen=True)
class Subject:
    """A recipe to check, and where its words stand. ``changed``: places that inventory data decides."""

    recipe: Recipe
    document: Document
    changed: frozenset[Keys] = frozenset()

    def place(self, case: Case, keys: Keys) -> tuple[str, int]:
        """File and line of a place; line 0 is in inventory data."""
        if keys in self.changed:
            return f"recipe_overrides.{self.recipe.name}", 0
        return shown(self.document.path), case.line(keys)


def shown(path: Path) -> str:
    """A path as a person calls it: from here, if it is below."""
    try:
        return str(path.resolve().relative_to(Path.cwd().resolve()))
    except ValueError:
        return str(path)


def check_file(path: Path, only: str | None = None) -> tuple[Finding, ...]:
    """Every finding of one file, on its engines or on the one named. Raises UserError if ``only`` is unknown."""
    chosen = engine(only) if only else None
    try:
        found = entry(path)
        document = read(path)
    except UserError as error:
        return merged(_invalid(path, error))
    if isinstance(found, KnownBad):
        return (_known_bad(found, document),)
    return check_recipe(Subject(found, document), [chosen] if chosen else None)


def check_recipe(
    subject: Subject, engines: Sequence[Engine] | None = None, api_key: bool = False
) -> tuple[Finding, ...]:
    """Every finding of a recipe, by default on all engines that it is for.

    ``api_key``: whether the host gives its engines one. Raises UserError when the catalog itself is wrong.
    """
    own, unknown = _engines(subject)
    cases = [Case(subject.recipe, one, subject.document, api_key) for one in (engines if engines is not None else own)]
    findings = [finding for case in cases for finding in _on(subject, case)]
    if subject.recipe.waivers:
        others = (Case(subject.recipe, one, subject.document, api_key) for one in own if one not in (engines or own))
        fired = [*findings, *(finding for case in others for finding in _on(subject, case))]
        findings += _useless_waivers(subject, fired)
    return merged([*unknown, *findings])


@dataclass(frozen=True)
class Served:
    """A recipe of a host, and the engine it will have there. ``changes`` are already in ``recipe``."""

    recipe: Recipe
    path: Path
    engine: Engine
    changes: Overrides

    @property
    def subject(self) -> Subject:
        """What is to be checked; what the changes decide stands in inventory data."""
        said = self.changes.model_dump(exclude_defaults=True)
        places = {(key, name) for key, value in said.items() if isinstance(value, dict) for name in value}
        return Subject(self.recipe, read(self.path), frozenset(places | {(key,) for key in said}))


_checked: dict[object, tuple[Finding, ...]] = {}


def check_host(
    served: Sequence[Served], api_key: bool = False, apart: Mapping[str, Collection[str]] | None = None
) -> tuple[Finding, ...]:
    """Every finding of the recipes of one host. ``apart``: for each recipe those that never run beside it.

    Raises UserError when a file cannot be read any more.
    """
    findings = [finding for one in served for finding in _once(one, api_key)]
    return merged([*findings, *_ports(served, apart or {})])


def _once(one: Served, api_key: bool) -> tuple[Finding, ...]:
    """What one recipe has, worked out once for all hosts that serve it in the same way."""
    key = (one.path, one.path.stat().st_mtime_ns, one.engine.name, one.changes.model_dump_json(), api_key)
    if key not in _checked:
        _checked[key] = check_recipe(one.subject, [one.engine], api_key)
    return _checked[key]


def _on(subject: Subject, case: Case) -> Iterator[Finding]:
    """What all rules find in one case; of several about one place, those that say more."""
    troubles = [(rule, trouble) for rule in RULES.values() for trouble in rule.check(case)]
    silenced = {(less, trouble.keys) for rule, trouble in troubles for less in rule.instead}
    waived = {one.rule: one.reason for one in subject.recipe.waivers}
    for rule, trouble in troubles:
        if (rule.id, trouble.keys) not in silenced:
            reason = waived.get(rule.id, "") if rule.may_be_waived(case) else ""
            place = subject.place(case, trouble.keys)
            yield replace(_finding(rule, trouble, place, reason), engines=(case.engine.name,))


def _finding(rule: Rule, trouble: Trouble, place: tuple[str, int], waived: str = "") -> Finding:
    return Finding(
        rule=rule.id,
        severity=rule.severity,
        file=place[0],
        line=place[1],
        key=".".join(map(str, trouble.keys)),
        engines=(),
        what=sentence(trouble.what),
        why=sentence(trouble.why) or rule.why,
        remedy=sentence(trouble.remedy),
        waived=waived,
    )


def _engines(subject: Subject) -> tuple[list[Engine], list[Finding]]:
    """The engines of a recipe, and what there is to say of those that the catalog does not have."""
    found, unknown = [], []
    for index, name in enumerate(subject.recipe.engine_names):
        if (ENGINES / f"{name}.yaml").is_file():
            found.append(engine(name))
            continue
        trouble = Trouble(("engines", index), f"there is no engine {name!r}.", "take one of catalog/engines/.")
        place = shown(subject.document.path), subject.document.line("engines", index)
        unknown.append(_finding(ENGINE_UNKNOWN, trouble, place))
    return found, unknown


def _useless_waivers(subject: Subject, fired: Iterable[Finding]) -> Iterator[Finding]:
    waived, found = set(), set()
    for one in fired:
        found.add(one.rule)
        if one.waived:
            waived.add(one.rule)
    for index, waiver in enumerate(subject.recipe.waivers):
        if waiver.rule in waived:
            continue
        if waiver.rule not in RULES:
            what = f"there is no rule {waiver.rule}."
        elif waiver.rule in found or RULES[waiver.rule].waivable == "no":
            what = f"{waiver.rule} cannot be waived here."
        else:
            what = f"{waiver.rule} finds nothing."
        trouble = Trouble(("waivers", index), what, "take the waiver out.")
        place = shown(subject.document.path), subject.document.line("waivers", index)
        yield _finding(WAIVER_WITHOUT_EFFECT, trouble, place)


def _ports(served: Sequence[Served], apart: Mapping[str, Collection[str]]) -> Iterator[Finding]:
    for number, one in enumerate(served):
        port, others = one.recipe.port, apart.get(one.recipe.name, ())
        same = (other.recipe for other in served[:number] if other.recipe.port == port)
        first = next((other for other in same if other.name not in others), None)
        if first is None:
            continue
        place = f"recipe_overrides.{one.recipe.name}", 0
        if one.changes.port is None:
            place = shown(one.path), read(one.path).line("port")
        what = f"port {port} is wanted by {first.name} and {one.recipe.name} on one host."
        remedy = "give one of them another `port`, in its file or in `recipe_overrides`."
        yield _finding(PORT_TWICE, Trouble(("port",), what, remedy), place)


def _known_bad(found: KnownBad, document: Document) -> Finding:
    verdict = found.known_bad
    why = f"{' '.join(verdict.reason.split())} ({' '.join(found.evidence.split())})"
    trouble = Trouble(("known_bad",), f"{found.title}: known not to work.", f"take {verdict.instead}.", why)
    return _finding(KNOWN_BAD, trouble, (shown(document.path), document.line("known_bad")))


def _invalid(path: Path, error: UserError) -> Iterator[Finding]:
    for text in str(error).splitlines():
        placed = _PLACED.match(text)
        line, key = (int(placed["line"]), placed["key"]) if placed else (1, "")
        what = placed["what"] if placed else text.removeprefix(f"{path}: ").removeprefix(f"{path}:")
        trouble = Trouble((key,) if key else (), f"{key}: {what}" if key else what, "correct the file.")
        yield _finding(RECIPE_INVALID, trouble, (shown(path), line))
