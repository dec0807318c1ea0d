"""What each recipe is doing at this moment: whether its engine answers, with how much work, and from which process."""

from .. import ports
from ..facts.shapes import PortOwner
from ..process import command_of, environment_of
from ..secrecy import shown
from ..shapes import Expectation, Live, UnitState
from . import live, serving
from .metrics import Load, load
from .serving import Engine, NotServing, Silent


def look(expectation: Expectation, state: UnitState, owners: tuple[PortOwner, ...]) -> Live:
    """The engine that ``expectation`` is about, now. ``owners``: who holds the ports of this host's recipes."""
    if state.active != "active" or not state.pid:
        return Live(expectation.recipe, difference=_stranger(expectation, owners))
    if pid := _halted(state.pid):
        return Live(expectation.recipe, f"process {pid} was halted (SIGSTOP)", live.complaint(expectation, state))
    engine = serving.engine_of(expectation, environment_of(state.pid))
    try:
        models = list(serving.models(engine))
        work = _load(engine)
    except NotServing as error:
        return Live(expectation.recipe, str(error), live.complaint(expectation, state))
    difference = _stranger(expectation, owners) or live.complaint(expectation, state)
    if not difference and models != [expectation.model]:
        difference = f"port {expectation.port}: it serves {', '.join(models) or 'nothing'}, not {expectation.model}"
    return Live(expectation.recipe, "", difference, work.running, work.waiting, work.kv_use)


def _load(engine: Engine) -> Load:
    """Raises Silent when nothing comes; an engine that answers with something else does not say."""
    try:
        return load(serving.metrics(engine))
    except Silent:
        raise
    except NotServing:
        return Load()


def _stranger(expectation: Expectation, owners: tuple[PortOwner, ...]) -> str:
    """The process on the recipe's port that is not its unit's, with its command, as far as that can be seen."""
    owner = next((one for one in owners if one.port == expectation.port and one.unit != expectation.unit), None)
    if owner is None or owner.pid is None:
        return ""
    whose = f" of {owner.unit}" if owner.unit else ""
    how = _how(command_of(owner.pid), expectation)
    return f"process {owner.pid}{whose} listens on port {expectation.port}, not {expectation.unit}; {how}"


def _how(words: list[str], expectation: Expectation) -> str:
    """How a process was started: by its difference from the unit's command where it is the same program."""
    command = list(expectation.command)
    if words[-len(command) :] == command:
        return "it was started with the unit's own arguments"
    if command[0] in words:
        return f"it was not started with the unit's command: {live.first_difference(words, expectation)}"
    return f"it was started as `{' '.join(shown(words))[:200]}`"


def _halted(pid: int) -> int:
    """The first process of an engine that somebody has stopped with a signal; 0 when none is."""
    return next((one for one in (pid, *ports.descendants(pid)) if _process_state(one) in ("T", "t")), 0)


def _process_state(pid: int) -> str:
    """The letter of proc_pid_stat(5); empty when the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""
