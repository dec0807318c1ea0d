"""The whole observed state of this host, in one look that changes nothing."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from . import account, facts, receipt
from .checks import preflight, rules
from .errors import HostError
from .facts.shapes import Machine
from .models import vocab, weights
from .paths import look, sha256
from .releases import release
from .services import generations, units
from .shapes import SCHEMA, Finding, Live, Observed, Question, Receipt, Removal, Requirements, UnitState, WeightsState

#: Where the agent lives on a host once a deploy has passed preflight.
HOME = Path("/opt/sparkfleet/agent.pyz")


def observe(question: Question) -> Observed:
    """Answer ``question``; what cannot be seen becomes a finding, never an exception."""
    content, broken = _receipt()
    users = generations.users(content)
    releases = tuple(replace(one, users=users.get(one.name, ())) for one in release.look(question.releases))
    models = tuple(weights.look(model, content.get("weights", {})) for model in question.models)
    needs = _still_needed(question.requirements, models)
    places = ("/", "/tmp", *question.directories, *(need.path for need in needs.disk))
    seen = facts.examine(places, needs.ports, needs.python, question.now)
    present = {one.name for one in releases if not one.problem} | {one.model for one in models if not one.problem}
    brought, needs = _wheels(question, needs, present)
    summary = receipt.summary(content)
    ours = {*question.units, *(summary.units if summary else ())}
    case = preflight.case(seen, needs, present, ours)
    states = _units(question, summary)
    paths = {path: look(path) for path in (*question.directories, *question.files)}
    return Observed(
        schema=SCHEMA,
        agent=sha256(HOME) if HOME.is_file() else "",
        machine=seen,
        findings=(*broken, *rules.judge(question.rules, case)),
        receipt=summary,
        account=account.look(question.account),
        paths={path: state for path, state in paths.items() if state},
        releases=releases,
        vocab=vocab.look(question.vocab, content.get("vocab", {})),
        weights=models,
        units=states,
        verified=receipt.verified(content),
        served=generations.served(content),
        current=generations.digests(content),
        wheels=brought,
        live=_live(question, states, seen),
        removal=None if broken else _removal(question),
    )


def _live(question: Question, states: tuple[UnitState, ...], seen: Machine) -> tuple[Live, ...]:
    if not question.serving:
        return ()
    from .proofs import moment  # a deploy need not load what asks engines

    there = {state.name: state for state in states}
    asked = [one for one in question.serving if one.unit in there]
    return tuple(moment.look(one, there[one.unit], seen.processes.ports) for one in asked)


def _removal(question: Question) -> Removal | None:
    if question.removal is None:
        return None
    from .services import removal

    return removal.look(question.removal)


def _wheels(question: Question, needs: Requirements, present: set[str]) -> tuple[tuple[str, ...], Requirements]:
    """Missing releases that all wheels are there for; and what the machine needs, less the wheels that are there."""
    bringing = [one for one in needs.disk if one.path == question.wheels and one.unless not in present]
    if not bringing:
        return (), needs
    from .supply import wheels  # Python's HTTP takes longer to import than the rest of a look

    brought = wheels.complete(Path(question.wheels), [one.unless for one in bringing])
    disk = tuple(wheels.still_needed(one) if one in bringing else one for one in needs.disk)
    return brought, replace(needs, disk=disk)


def _still_needed(needs: Requirements, models: tuple[WeightsState, ...]) -> Requirements:
    """What is there already of a model needs no room."""
    there = {one.model: one.there for one in models}
    disk = (replace(need, size=max(0, need.size - there.get(need.unless, 0))) for need in needs.disk)
    return replace(needs, disk=tuple(disk))


def _receipt() -> tuple[dict[str, Any], tuple[Finding, ...]]:
    try:
        return receipt.read(), ()
    except HostError as error:
        return {}, (Finding("receipt", "stop", str(error).rstrip("."), "run again once the receipt can be read"),)


def _units(question: Question, summary: Receipt | None) -> tuple[UnitState, ...]:
    names = dict.fromkeys((*question.units, *(summary.units if summary else ())))
    try:
        return units.look(tuple(names))
    except HostError:
        return ()  # no systemd: preflight says so


def own_code() -> bytes:
    """The bytes of the zipapp this agent runs from, be it a file or memory."""
    return Path(sys.argv[0]).read_bytes()
