"""What differs between what should be true on a host and what is. Pure: the heart of every role and of ``--dry``."""

from collections.abc import Iterator
from dataclasses import dataclass

from sparkfleet.agent.account import FIRST_REGULAR_UID
from sparkfleet.agent.shapes import Directory, Observed, PathState, TextFile, Unit, UnitState, Verified, WheelsOrder
from sparkfleet.bundle import AGENT
from sparkfleet.desired import Desired

ROLES = ("account", "wheels", "engine", "patches", "vocab", "weights", "service", "verify")

#: What is found of a recipe whose process was verified and is about to give way to another, and of one without any.
_VERIFIED, _NOT_RUNNING = "verified before", "not running yet"

#: What is found of a recipe that is to be asked only because its unit is changed.
FOLLOWS = frozenset({_VERIFIED, _NOT_RUNNING})

#: What is found of a unit of ours that no recipe wants.
RETIRED = "no recipe of this host any more"


@dataclass(frozen=True)
class Change:
    """One thing that is not as it should be, and what a deploy does about it."""

    role: str
    thing: str
    found: str
    action: str

    def __str__(self) -> str:
        return f"{self.thing}: {self.found}; {self.action}"


def changes(wanted: Desired, seen: Observed) -> tuple[Change, ...]:
    """Everything to do, in the order of the roles; empty for a host that is as it should be."""
    service = tuple(_service(wanted, seen))
    return (
        *_account(wanted, seen),
        *_wheels(wanted, seen),
        *_engine(wanted, seen),
        *_patches(wanted, seen),
        *_vocab(wanted, seen),
        *_weights(wanted, seen),
        *service,
        *_verify(wanted, seen, {change.thing: change.action for change in service}),
    )


def _account(wanted: Desired, seen: Observed) -> Iterator[Change]:
    name = wanted.account.account.name
    if seen.receipt is None and seen.account:
        yield Change("account", "receipt", "missing", "write down what is here")
    if seen.agent != wanted.agent:
        yield Change("account", AGENT, "another version" if seen.agent else "missing", "lay down")
    if seen.account is None:
        yield Change("account", f"user {name}", "missing", "create")
    elif groups := seen.account.missing_groups:
        yield Change("account", f"user {name}", f"not in {', '.join(groups)}", "add")
    elif seen.account.uid >= FIRST_REGULAR_UID:
        yield Change("account", f"user {name}", "a person's account, not a system user", "refuse")
    for directory in wanted.account.directories:
        yield from _directory(directory, seen.paths.get(directory.path), bool(seen.account))
    for file in wanted.account.files:
        yield from _file("account", file, seen.paths.get(file.path))


def _directory(wanted: Directory, found: PathState | None, account: bool) -> Iterator[Change]:
    if found is None:
        yield Change("account", wanted.path, "missing", "create")
    elif not account and wanted.owner != "root":
        pass  # its owner is the user that is about to be created
    elif (found.kind, found.owner, found.group, found.mode) != ("directory", wanted.owner, wanted.group, wanted.mode):
        yield Change("account", wanted.path, f"{found.kind} of {found.owner}, mode {found.mode:o}", "set right")


def _file(role: str, wanted: TextFile, found: PathState | None) -> Iterator[Change]:
    if found is None:
        yield Change(role, wanted.path, "missing", "write")
    elif found.sha256 != wanted.sha256:
        yield Change(role, wanted.path, "differs", "write")
    elif (found.owner, found.group, found.mode) != ("root", "root", wanted.mode):
        yield Change(role, wanted.path, f"of {found.owner}, mode {found.mode:o}", "set right")


def _wheels(wanted: Desired, seen: Observed) -> Iterator[Change]:
    for order in lacking_wheels(wanted, seen):
        yield Change("wheels", f"wheels of {order.release}", "not all on the host", f"bring from {order.origin}")


def lacking_wheels(wanted: Desired, seen: Observed) -> tuple[WheelsOrder, ...]:
    """The wheels that a release is to be built from and that are to be brought for it first."""
    built = {release.name for release in seen.releases if release.sealed or release.waiting}
    return tuple(one for one in wanted.wheels if one.release not in built | set(seen.wheels))


def _engine(wanted: Desired, seen: Observed) -> Iterator[Change]:
    there = {release.name: release for release in seen.releases}
    for release in wanted.releases:
        found = there.get(release.name)
        if found is None:
            yield Change("engine", f"release {release.name}", "missing", "build")
        elif not found.sealed and not found.waiting:
            yield Change("engine", f"release {release.name}", found.problem, "build again")


def _patches(wanted: Desired, seen: Observed) -> Iterator[Change]:
    sealed = {release.name for release in seen.releases if release.sealed}
    for release in wanted.releases:
        if release.name not in sealed:
            yield Change("patches", f"release {release.name}", "not sealed", "apply its patch set and seal it")


def _vocab(wanted: Desired, seen: Observed) -> Iterator[Change]:
    if seen.vocab:
        yield Change("vocab", wanted.vocab.path, seen.vocab, "lay down")


def _weights(wanted: Desired, seen: Observed) -> Iterator[Change]:
    problems = {model.model: model.problem for model in seen.weights}
    for model in wanted.weights:
        if problem := problems.get(model.model, "not looked at"):
            yield Change("weights", f"model {model.model}", problem, "complete")


def _service(wanted: Desired, seen: Observed) -> Iterator[Change]:
    states = {state.name: state for state in seen.units}
    for name in retired(wanted, seen):
        yield Change("service", name, RETIRED, "stop and remove")
    for unit in wanted.units:
        for file in unit.files:
            yield from _file("service", file, seen.paths.get(file.path))
        yield from _running(unit, states.get(unit.name), seen)


def retired(wanted: Desired, seen: Observed) -> tuple[str, ...]:
    """Units of ours on the host that no recipe of it wants any more."""
    names = {unit.name for unit in wanted.units}
    return tuple(name for name in (seen.receipt.units if seen.receipt else ()) if name not in names)


def _running(unit: Unit, found: UnitState | None, seen: Observed) -> Iterator[Change]:
    if found is None or found.load == "not-found":
        yield Change("service", unit.name, "missing", "lay down" if unit.standby else "enable and start")
        return
    if unit.standby:
        yield from _waiting(unit, found)
        return
    if seen.receipt and unit.name not in seen.receipt.units:
        yield Change("service", unit.name, "not in the receipt", "write down")
    if found.enabled != "enabled":
        yield Change("service", unit.name, found.enabled or "not enabled", "enable")
    if found.active != "active":
        yield Change("service", unit.name, f"{found.active} ({found.result})", "start")
    elif found.digest != unit.digest:
        yield Change("service", unit.name, "runs from other settings", "restart")
    elif _rebuilt(unit, found, seen):
        yield Change("service", unit.name, "runs from a release that is or was built again", "restart")
    elif any(one.model == unit.model and one.changed > found.started for one in seen.weights):
        yield Change("service", unit.name, "its weights were changed after it was started", "restart")
    elif _suspect(unit, found, seen) or (seen.receipt and found.invocation in seen.receipt.suspects):
        yield Change("service", unit.name, "may run from a file that was edited", "restart")
    elif found.needs_reload:
        yield Change("service", unit.name, "systemd has an older file in mind", "reload")


def _waiting(unit: Unit, found: UnitState) -> Iterator[Change]:
    if found.enabled == "enabled":
        yield Change("service", unit.name, "enabled, and there is no room for it", "disable")
    elif found.needs_reload:
        yield Change("service", unit.name, "systemd has an older file in mind", "reload")


def _rebuilt(unit: Unit, found: UnitState, seen: Observed) -> bool:
    release = next((one for one in seen.releases if unit.release.endswith(f"/{one.name}")), None)
    return release is None or not release.sealed or release.built > found.started


def _suspect(unit: Unit, found: UnitState, seen: Observed) -> bool:
    """Whether the process was started after one of its files was changed behind our back."""
    states = ((file, seen.paths.get(file.path)) for file in unit.files if file.starts)
    return any(state and state.sha256 != file.sha256 and found.started >= state.mtime for file, state in states)


def _verify(wanted: Desired, seen: Observed, touched: dict[str, str]) -> Iterator[Change]:
    invocations = {state.name: state.invocation for state in seen.units}
    outcomes = {outcome.recipe: outcome for outcome in seen.verified}
    for expectation in wanted.expectations:
        outcome, invocation = outcomes.get(expectation.recipe), invocations.get(expectation.unit)
        if not invocation:
            yield Change("verify", expectation.recipe, _NOT_RUNNING, "ask it")
        elif reason := _unverified(outcome, invocation):
            yield Change("verify", expectation.recipe, reason, "ask it")
        elif action := touched.get(expectation.unit):
            yield Change("verify", expectation.recipe, _VERIFIED, f"ask it again after the {action}")


def _unverified(outcome: Verified | None, invocation: str) -> str:
    if outcome is None or outcome.invocation != invocation:
        return "not verified since it was started"
    return "" if outcome.passed else "failed its last verification"
