"""Behaviour, not intent: what the engine's process was really started with, and what it said while it started."""

import re

from ..process import command_of, environment_of
from ..secrecy import shown
from ..services import guard
from ..shapes import Expectation, JournalRule, UnitState

_GONE = (
    "the journal does not have the beginning of this start (removed since, or never kept: see `journalctl --header`)"
)


def complaint(expectation: Expectation, state: UnitState) -> str:
    """How the running process differs from the unit that it should come from; empty when it does not."""
    if state.active != "active" or not state.pid:
        return f"{expectation.unit} is {state.active or 'not there'}: nothing serves"
    argv = command_of(state.pid)
    # The interpreter of the command's first line stands before it.
    if argv[-len(expectation.command) :] != list(expectation.command):
        return f"process {state.pid} was not started with the unit's command: {first_difference(argv, expectation)}"
    environment = environment_of(state.pid)
    for name, value in sorted(expectation.environment.items()):
        if environment.get(name) != value:
            found = environment.get(name)
            return (
                f"process {state.pid} was started with {name}={found!r}, the unit says {value!r}"
                if found is not None
                else f"process {state.pid} was started without {name}, the unit says {value!r}"
            )
    return ""


def first_difference(argv: list[str], expectation: Expectation) -> str:
    """The first few words that ``argv`` lacks, and those that it has besides, without secrets."""
    # Options count by what they are, not by where they stand.
    wanted, found = set(expectation.command), set(argv)
    missing = [word for word in expectation.command if word not in found]
    more = [word for word in argv[1:] if word not in wanted]  # the first is the interpreter's
    parts = [f"missing {' '.join(shown(missing)[:3])}"] if missing else []
    return "; ".join(parts + ([f"found {' '.join(shown(more)[:3])}"] if more else [])) or "the order differs"


def judge_journal(rules: tuple[JournalRule, ...], lines: list[str], proven: bool) -> tuple[str, str]:
    """What is wrong with the ``lines`` of a start, and what else is to be said of them; each empty when nothing is.

    A journal is rotated and cleared: lines that it does not have any more were not missing. ``proven``: they have been
    judged before, and were as they should be.
    """
    if any(guard.PASSED in line for line in lines):
        return broken(rules, lines), ""
    required = any(rule.required for rule in rules)
    if said := broken(tuple(rule for rule in rules if not rule.required), lines):
        return said, ""
    if required and not proven:
        return (
            f"{_GONE}, so it cannot be told whether the engine runs as this recipe is meant to. Restart the unit.",
            "",
        )
    return "", f"its start was not judged again: {_GONE}" if rules else ""


def broken(rules: tuple[JournalRule, ...], lines: list[str]) -> str:
    """The first of ``rules`` that ``lines`` break, with the line that does; empty when they break none."""
    for rule in rules:
        line = next((line for line in lines if re.search(rule.pattern, line)), None)
        if rule.required and line is None:
            return f"its journal lacks a line with `{_plain(rule.pattern)}`. {rule.meaning}"
        if not rule.required and line is not None:
            return f"its journal has the line `{_around(line, rule.pattern)}`. {rule.meaning}"
    return ""


def _plain(pattern: str) -> str:
    return re.sub(r"\\(.)", r"\1", pattern)


def _around(line: str, pattern: str) -> str:
    """The line, or of a long one what stands around the match."""
    found = re.search(pattern, line)
    if len(line) <= 200 or found is None:
        return line
    begin, end = max(0, found.start() - 80), min(len(line), found.end() + 80)
    return f"{'... ' if begin else ''}{line[begin:end]}{' ...' if end < len(line) else ''}"
