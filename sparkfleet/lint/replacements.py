"""What took the place of a name: derived from what the releases themselves said when they deprecated it."""

import re

from sparkfleet.knowledge.known import Known
from sparkfleet.lint.case import Case

_FLAG = re.compile(r"--([a-z][a-z0-9-]*)(?: ([a-z0-9_]+))?")


def for_variable(case: Case, name: str, value: str) -> tuple[str, str]:
    """What to say of a variable that only other engines know, and what to write. ``case.known`` is there."""
    assert case.known and case.version
    older, newer = _around(case, [one for one in case.others if name in one.environment])
    if older is None:
        assert newer
        return f"{case.title} does not have {name} yet; {newer.title} has it.", "take it out, or take that engine."
    said = older.environment[name].deprecated
    what = f"{case.title} has no {name} any more; {older.title} was the last here that had it."
    if not said:
        return what, "take it out."
    return what, _written(case.known, said, value) or f"{older.title} said of it: {said}"


def for_flag(case: Case, name: str) -> tuple[str, str]:
    """The same for a flag."""
    assert case.known
    older, newer = _around(case, [one for one in case.others if one.flag(name)])
    if older:
        return f"{case.title} has no --{name} any more; {older.title} had it.", "take it out."
    assert newer
    what = f"{case.title} does not have --{name} yet; {newer.title} has it."
    before = _before(case, name)
    return what, f"write {before} under `environment`, or take that engine." if before else "take that engine."


def _around(case: Case, having: list[Known]) -> tuple[Known | None, Known | None]:
    """The newest engine before this one, and the oldest after it."""
    assert case.version
    older = [one for one in having if one.version < case.version]
    newer = [one for one in having if one.version >= case.version]
    return (older[-1] if older else None, newer[0] if newer else None)


def _written(known: Known, said: str, value: str) -> str:
    """The flag that a deprecation names, with the old value where the flag has it; empty when it names none here."""
    for flag, example in _FLAG.findall(said):
        if not (found := known.flags.get(flag)):
            continue
        wanted = value.lower().replace("-", "_")
        choices = {str(one) for one in found.choices or ()}
        if wanted in choices:
            return f"write `flags: {{{flag}: {wanted}}}`."
        return f"write `flags: {{{flag}: {example or '...'}}}`."
    return ""


def _before(case: Case, flag: str) -> str:
    """The variable of this engine that a later one deprecated for the flag; the one that has its value, if any has."""
    assert case.known
    wanted = str(case.serving.flags.get(flag, "")).replace("_", "-")
    found = [
        name
        for other in case.others
        for name, variable in other.environment.items()
        if flag in {one for one, _ in _FLAG.findall(variable.deprecated)} and name in case.known.environment
    ]
    fitting = (name for name in found if wanted in (case.known.environment[name].choices or ()))
    return next(fitting, found[0] if found else "")
