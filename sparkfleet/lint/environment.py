"""Environment variables: what the engine does not know it ignores, with one line in a log that nobody reads."""

from collections.abc import Iterator
from difflib import get_close_matches

from sparkfleet.harmony import misleading
from sparkfleet.knowledge.known import Variable
from sparkfleet.lint.case import Case
from sparkfleet.lint.data import Foreign, foreign, forks
from sparkfleet.lint.findings import Trouble
from sparkfleet.lint.registry import rule
from sparkfleet.lint.replacements import for_variable

_OFF = ("0", "false", "")


def _unknown(case: Case) -> Iterator[str]:
    """Names that look like vLLM's and that the engine does not know; none when nobody has read the engine."""
    if case.known is None:
        return
    for name in case.serving.environment:
        if name.upper().startswith("VLLM_") and name not in case.known.environment:
            yield name


def _elsewhere(case: Case, name: str) -> bool:
    return any(name in one.environment for one in case.others)


def _forked(name: str) -> bool:
    return any(one.variable == name for one in forks())


@rule("unknown-variable", "error", waivable="unread")
def unknown_variable(case: Case) -> Iterator[Trouble]:
    """A variable that begins like vLLM's and that no engine of the catalog knows.

    Why: vLLM logs one warning and goes on without it, so the setting it was to make is not made.

    Source: `environment_variables` in `vllm/envs.py` of the pinned wheel; the warning is in 0.17.0 and later.
    """
    for name in _unknown(case):
        if _elsewhere(case, name) or _forked(name):
            continue
        assert case.known
        near = get_close_matches(name.upper(), case.known.environment, n=1, cutoff=0.8)
        remedy = f"write {near[0]}, which it knows." if near else "take it out; no variable that it knows is like it."
        yield Trouble(("environment", name), f"{case.title} does not know {name}.", remedy)


@rule("variable-not-in-release", "error", waivable="unread")
def variable_not_in_release(case: Case) -> Iterator[Trouble]:
    """A variable that another release knows and this one does not: gone already, or not there yet.

    Why: vLLM logs one warning and goes on without it. Write-ups for an older release name variables that are flags now.

    Source: `vllm/envs.py` of the pinned wheels, compared; replacements are what the release said that deprecated them.
    """
    for name in _unknown(case):
        if _elsewhere(case, name):
            what, remedy = for_variable(case, name, case.serving.environment[name])
            yield Trouble(("environment", name), what, remedy)


@rule("fork-variable", "error", waivable="unread")
def fork_variable(case: Case) -> Iterator[Trouble]:
    """A variable that only a fork of vLLM has ever known.

    Why: Write-ups name it as if it were vLLM's; on a release it does nothing, and the kernel stays the wrong one.

    Source: `catalog/lint/forks.yaml`, with the commit of the fork. On an engine that nobody has read it is said too,
    unless that is the fork.
    """
    for one in forks():
        for name in case.serving.environment:
            known = case.known and name in case.known.environment
            if name == one.variable and one.strange_to(case.engine.name) and not known:
                what = f"{name} is of {one.fork}; {case.title} does not know it."
                yield Trouble(("environment", name), what, f"write {one.instead}.")


@rule("deprecated-variable", "warning")
def deprecated_variable(case: Case) -> Iterator[Trouble]:
    """A variable that still works here and that this release announces the end of.

    Why: the next release ignores it, so a recipe that works today answers garbage after an upgrade.

    Source: `deprecated_env` in `vllm/envs.py` of the pinned wheel.
    """
    for name, known in _known(case):
        if known.deprecated:
            remedy = known.deprecated if known.deprecated != "deprecated" else "take it out."
            yield Trouble(("environment", name), f"{name} is deprecated in {case.title}.", remedy)


@rule("variable-value", "error")
def variable_value(case: Case) -> Iterator[Trouble]:
    """A value that is none of the choices, is not of the type, or is not the word that switches the variable on.

    Why: a wrong choice or number ends the start with a traceback; a wrong word is taken for "off" without a sound.

    Source: choices, types and comparisons in `vllm/envs.py` of the pinned wheel.
    """
    for name, known in _known(case):
        if wrong := _wrong(known, case.serving.environment[name]):
            what, remedy = wrong
            yield Trouble(("environment", name), f"{name}: {what}", remedy)


def _known(case: Case) -> Iterator[tuple[str, Variable]]:
    for name in case.serving.environment:
        if case.known and (found := case.known.environment.get(name)):
            yield name, found


def _wrong(known: Variable, value: str) -> tuple[str, str] | None:
    """What is wrong with a value and what to write, if anything is."""
    if known.choices is not None:
        given = [part.strip() for part in value.split(",")] if known.many else [value]
        fold = str.lower if known.case == "any" else str
        allowed = {fold(one) for one in known.choices}
        if unknown := [one for one in given if one and fold(one) not in allowed]:
            near = get_close_matches(unknown[0], known.choices, n=1)
            return f"{unknown[0]!r} is not a choice.", _one_of(known.choices, near)
    elif known.type == "bool" and known.true:
        if value.strip().lower() not in (*known.true, *_OFF):
            return f"{value!r} is taken for off.", f"write {' or '.join(map(repr, known.true))}, or '0' for off."
    elif known.type == "bool" and not _is(int, value):
        return f"{value!r} is read as a number and is none.", "write '1' or '0'."
    elif known.type == "int" and not _is(int, value):
        return f"{value!r} is not a whole number.", "write a whole number."
    elif known.type == "float" and not _is(float, value):
        return f"{value!r} is not a number.", "write a number."
    return None


def _is(kind: type[int] | type[float], value: str) -> bool:
    try:
        kind(value)
    except ValueError:
        return False
    return True


def _one_of(choices: tuple[str, ...], near: list[str]) -> str:
    return f"write {near[0]!r}." if near else f"write one of {', '.join(choices)}."


def _outside(case: Case) -> Iterator[tuple[str, Foreign | None]]:
    """Variables that are not vLLM's, with what is known of them."""
    for name in case.serving.environment:
        if not name.upper().startswith("VLLM_") and not (case.known and name in case.known.environment):
            yield name, next((one for one in foreign() if one.covers(name)), None)


@rule("foreign-variable", "warning")
def foreign_variable(case: Case) -> Iterator[Trouble]:
    """A variable that neither vLLM nor the list of known others has.

    Why: nobody says so when a name is misspelt; outside vLLM's own names there is not even a warning.

    Source: `catalog/lint/variables.yaml`.
    """
    for name, found in _outside(case):
        if found is None:
            near = _near(case, name.upper())
            remedy = f"did you mean {near}? Otherwise" if near else "if something reads it,"
            what = f"nobody is known to read {name}."
            yield Trouble(("environment", name), what, f"{remedy} add it to catalog/lint/variables.yaml.")


def _near(case: Case, name: str) -> str:
    """The known name that a wrong one is like, or that begins with what it nearly begins with; empty if none is."""
    whole = [one.name for one in foreign() if not one.name.endswith("*")]
    whole += list(case.known.environment) if case.known else []
    if near := get_close_matches(name, whole, n=1, cutoff=0.8):
        return near[0]
    beginnings = {one.name[:-1] for one in foreign() if one.name.endswith("*")}
    alike = [one for one in beginnings if get_close_matches(name[: len(one)], [one], cutoff=0.74)]
    return min(alike) + name[len(min(alike)) :] if alike else ""


@rule("idle-variable", "warning")
def idle_variable(case: Case) -> Iterator[Trouble]:
    """A known variable that does nothing with this engine.

    Why: it stands in guides and looks like the reason why something works; whoever relies on it relies on nothing.

    Source: `idle` in `catalog/lint/variables.yaml`, each with its wheel.
    """
    for name, found in _outside(case):
        for idle in found.idle if found else ():
            if case.within(idle.versions):
                instead = "take it out." if idle.instead == "nothing" else f"write {idle.instead}, or take it out."
                yield Trouble(("environment", name), f"{name} does nothing here: {idle.why}.", instead)


@rule("stale-tiktoken", "warning")
def stale_tiktoken(case: Case) -> Iterator[Trouble]:
    """A variable for vocabulary files that the harmony library of this engine does not hear.

    Why: it is from the days of an older release, and what it points to is not used; a later engine may hear it again.

    Source: run without network: oss-harmony 0.0.11 (vLLM 0.31 and later) has the vocabularies in it and reads
    `TIKTOKEN_ENCODINGS_BASE` alone; openai-harmony 0.0.8 reads `TIKTOKEN_RS_CACHE_DIR` too.
    """
    name = "TIKTOKEN_RS_CACHE_DIR"
    if name in case.serving.environment and case.engine.harmony == "oss-harmony":
        what = f"{name} does nothing: oss-harmony does not read it and brings its vocabularies."
        yield Trouble(("environment", name), what, "take it out.")


@rule("vocabulary-elsewhere", "error", waivable="no")
def vocabulary_elsewhere(case: Case) -> Iterator[Trouble]:
    """A variable that leads the harmony library away from where the vocabularies are.

    Why: gpt-oss then dies at its first request on a host without internet; openai-harmony falls back to nothing, and
    deletes a file of its cache that it cannot read.

    Source: run without network with openai-harmony 0.0.8 and oss-harmony 0.0.11; a deploy refuses it as well.
    """
    for name, why in misleading(case.recipe, case.engine, case.serving.environment).items():
        what = f"{name} is {case.serving.environment[name]}: {why}"
        yield Trouble(("environment", name), what, "take it out; `vocabularies` says which are needed.")
