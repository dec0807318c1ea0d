"""Flags of ``vllm serve``: what the engine does not accept ends its start, minutes after everything was changed."""

import json
import re
from collections.abc import Iterator
from difflib import get_close_matches

from sparkfleet.catalog.recipes import RESERVED, FlagValue
from sparkfleet.knowledge.known import Flag
from sparkfleet.lint.case import Case
from sparkfleet.lint.data import forks
from sparkfleet.lint.findings import Trouble
from sparkfleet.lint.registry import rule
from sparkfleet.lint.replacements import for_flag

#: Whole numbers that may be written like 32k; from `human_readable_int_args` in `vllm/engine/arg_utils.py` of 0.33.0.
_READABLE = {
    "kv-cache-memory-bytes",
    "max-model-len",
    "max-num-batched-tokens",
    "max-num-queued-tokens",
    "max-num-scheduled-tokens",
    "safetensors-prefetch-block-size",
}
_NUMBER = re.compile(r"^-?\d+$")
_READABLE_NUMBER = re.compile(r"^\d+(\.\d+)?[kKmMgGtT]?$|^-1$|^auto$")


def _given(case: Case) -> Iterator[tuple[str, FlagValue, str, Flag]]:
    """Each flag that the engine knows: as it is written, its value, its own name, what is known of it."""
    for name, value in case.serving.flags.items():
        if case.known and (found := case.known.flag(name)):
            yield name, value, *found


def _unknown(case: Case) -> Iterator[str]:
    for name in case.serving.flags:
        if case.known and not case.known.flag(name):
            yield name


def _elsewhere(case: Case, name: str) -> bool:
    return any(one.flag(name) for one in case.others)


@rule("unknown-flag", "error", waivable="unread")
def unknown_flag(case: Case) -> Iterator[Trouble]:
    """A flag that no engine of the catalog has.

    Why: `vllm serve` ends at once with a usage text, after the release was built and the weights were laid down.

    Source: the argument parser of the pinned wheel, read from its source.
    """
    for name in _unknown(case):
        if _elsewhere(case, name) or any(one.flag == name for one in forks()):
            continue
        assert case.known
        near = get_close_matches(name, [one for one in case.known.flags if one not in RESERVED], n=1, cutoff=0.75)
        remedy = f"write {near[0]}, which it has." if near else "take it out; no flag that it has is like it."
        yield Trouble(("flags", name), f"{case.title} has no flag --{name}.", remedy)


@rule("flag-not-in-release", "error", waivable="unread")
def flag_not_in_release(case: Case) -> Iterator[Trouble]:
    """A flag that another release has and this one has not: gone already, or not there yet.

    Why: `vllm serve` ends at once with a usage text, after the release was built and the weights were laid down.

    Source: the argument parsers of the pinned wheels, compared.
    """
    for name in _unknown(case):
        if _elsewhere(case, name):
            what, remedy = for_flag(case, name)
            yield Trouble(("flags", name), what, remedy)


@rule("fork-flag", "error", waivable="unread")
def fork_flag(case: Case) -> Iterator[Trouble]:
    """A flag that only a fork of vLLM has ever had.

    Why: recipes of others carry it as if it were vLLM's; a release ends its start with a usage text.

    Source: `catalog/lint/forks.yaml`. On an engine that nobody has read it is said too, unless that is the fork.
    """
    for one in forks():
        for name in case.serving.flags:
            known = case.known and case.known.flag(name)
            if name == one.flag and one.strange_to(case.engine.name) and not known:
                what = f"--{name} is of {one.fork}; {case.title} does not have it."
                yield Trouble(("flags", name), what, f"write {one.instead}.")


@rule("flag-alias", "error")
def flag_alias(case: Case) -> Iterator[Trouble]:
    """A flag under another of its names, or in its `no-` form.

    Why: a difference for one engine, an override of a host and the keys that stand for flags (`context`, `bind`) look
    for a flag's own name; under another the same flag would be given twice, and the last one wins.

    Source: the argument parser of the pinned wheel; `Recipe.on` merges by name.
    """
    for name, _, own, _ in _given(case):
        if name == own:
            continue
        if own in RESERVED:
            remedy = f"take it out: {RESERVED[own]}."
        else:
            remedy = f"write `{own}: false`." if name == f"no-{own}" else f"write {own}."
        yield Trouble(("flags", name), f"--{name} is another name of --{own}.", remedy)


@rule("flag-value", "error")
def flag_value(case: Case) -> Iterator[Trouble]:
    """A value that is none of the flag's choices or not of its type, or a key that its mapping does not have.

    Why: `vllm serve` ends at once with a usage text, after the release was built and the weights were laid down.

    Source: types and choices in the argument parser of the pinned wheel; its configuration classes forbid other keys.
    """
    for name, value, own, known in _given(case):
        if name == own and (wrong := _wrong(own, known, value)):
            yield Trouble(("flags", name), f"--{name}: {wrong[0]}", wrong[1])


def _wrong(name: str, known: Flag, value: FlagValue) -> tuple[str, str] | None:
    """What is wrong with a value and what to write, if anything is."""
    if known.type == "switch":
        return None if value is True else ("it takes no value and has no `no-` form.", "write true, or take it out.")
    if known.type == "bool":
        return (
            None if isinstance(value, bool) else (f"{_short(value)} is neither true nor false.", "write true or false.")
        )
    if known.type == "json":
        return _wrong_json(known, value)
    if isinstance(value, bool) and not (known.open and value and known.choices is None):
        return "it takes a value.", "write one, or take it out."
    if isinstance(value, dict):
        return "it takes no mapping.", "write one value."
    return _wrong_text(name, known, str(value)) if not isinstance(value, bool) else None


def _wrong_json(known: Flag, value: FlagValue) -> tuple[str, str] | None:
    content: object = value
    if isinstance(value, str):
        try:
            content = json.loads(value)
        except (ValueError, RecursionError):
            content = None
    if isinstance(content, list):
        return None
    if not isinstance(content, dict):
        return "it takes a mapping.", "write it as keys and values in YAML."
    # dashes are taken for underscores where the engine does so, and where it does not nobody writes them
    unknown = [key for key in content if known.keys and str(key).replace("-", "_") not in known.keys]
    if not unknown:
        return None
    near = get_close_matches(str(unknown[0]), known.keys, n=1)
    return f"it has no key {unknown[0]!r}.", f"write {near[0]}." if near else f"it has {', '.join(known.keys)}."


def _wrong_text(name: str, known: Flag, text: str) -> tuple[str, str] | None:
    if known.choices is not None and not known.open:
        fold = _loosely if known.loose else str
        given = text.split(",") if known.many else [text]
        allowed = {fold(str(one)) for one in known.choices}
        if unknown := [one for one in given if fold(one) not in allowed]:
            choices = [str(one) for one in known.choices]
            near = get_close_matches(unknown[0], choices, n=1)
            return f"{unknown[0]!r} is not a choice.", f"write {near[0] if near else 'one of ' + ', '.join(choices)}."
    elif known.type == "int" and not known.many:
        pattern = _READABLE_NUMBER if name in _READABLE else _NUMBER
        if not pattern.match(text):
            return f"{text!r} is not a whole number.", "write a whole number."
    elif known.type == "float" and not known.many:
        try:
            float(text)
        except ValueError:
            return f"{text!r} is not a number.", "write a number."
    return None


def _loosely(text: str) -> str:
    return text.lower().replace("-", "_")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


@rule("tools-without-parser", "error")
def tools_without_parser(case: Case) -> Iterator[Trouble]:
    """Automatic tool choice without the parser that reads the model's calls.

    Why: the start ends with `TypeError: --enable-auto-tool-choice requires --tool-call-parser`.

    Source: `validate_parsed_serve_args` in the entrypoints of 0.17.1 to 0.33.0.
    """
    flags = case.serving.flags
    if flags.get("enable-auto-tool-choice") is True and not flags.get("tool-call-parser"):
        what = "--enable-auto-tool-choice is given and --tool-call-parser is not."
        yield Trouble(("flags", "enable-auto-tool-choice"), what, "give tool-call-parser too, or neither.")
