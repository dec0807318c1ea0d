"""The systemd units of recipes: as wanted, running what they say, and serving before they count as started."""

import contextlib
import os
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .. import receipt
from ..command import run
from ..errors import HostError
from ..paths import ensure_file
from ..paths import look as look_at
from ..process import environment_of
from ..progress import say
from ..releases import release
from ..shapes import Author, Unit, UnitState
from . import generations, journal

#: The variable by which a unit's process shows what it was started from (see ``Unit.digest``).
DIGEST_VARIABLE = "SPARKFLEET_UNIT_DIGEST"

#: The line that marks a unit file as ours; a file without it is never replaced.
MARK = "# Managed by sparkfleet"

_PROPERTIES = (
    "Id",
    "LoadState",
    "ActiveState",
    "SubState",
    "UnitFileState",
    "Result",
    "MainPID",
    "InvocationID",
    "ExecMainStartTimestampMonotonic",
    "NeedDaemonReload",
)


def look(names: tuple[str, ...]) -> tuple[UnitState, ...]:
    """Every named unit as systemd sees it, in one call."""
    if not names:
        return ()
    shown = run(("systemctl", "show", "--property=" + ",".join(_PROPERTIES), *names))
    return tuple(_state(block) for block in shown.strip().split("\n\n"))


def _state(block: str) -> UnitState:
    values = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
    pid = int(values.get("MainPID") or 0)
    return UnitState(
        name=values.get("Id", ""),
        load=values.get("LoadState", ""),
        active=values.get("ActiveState", ""),
        sub=values.get("SubState", ""),
        enabled=values.get("UnitFileState", ""),
        result=values.get("Result", ""),
        pid=pid,
        invocation=values.get("InvocationID", ""),
        started=_seconds(values.get("ExecMainStartTimestampMonotonic", "")),
        digest=environment_of(pid).get(DIGEST_VARIABLE, "") if pid else "",
        needs_reload=values.get("NeedDaemonReload") == "yes",
    )


def _seconds(stamp: str) -> float:
    """Microseconds since boot as seconds since the epoch: systemd's own wall-clock stamps are cut to whole seconds."""
    micros = int(stamp) if stamp.isdigit() else 0
    return round(time.time() - time.monotonic() + micros / 1e6, 3) if micros else 0.0


def change(wanted: tuple[Unit, ...], retired: tuple[str, ...], author: Author) -> None:
    """Remove the ``retired``, then make every wanted unit be there, enabled and serving, or waiting if it is to wait.

    Raises HostError with the decisive lines of the journal when one does not come to serve.
    """
    known: dict[str, Any] = dict(receipt.read().get("units", {}))
    for name in retired:
        retire(name, known.pop(name, {}))
        receipt.record(author, units=known)
    for unit in wanted:
        (state,) = look((unit.name,))
        entry: dict[str, Any] = {"recipe": unit.recipe, "release": unit.release, "digest": unit.digest}
        entry["files"] = [file.path for file in unit.files]
        _remove(path for path in known.get(unit.name, {}).get("files", []) if path not in entry["files"])
        # Before the evidence is replaced: a run that is cut off between the two must not forget the restart.
        suspect = known.get(unit.name, {}).get("suspect", "")
        known[unit.name] = entry | {"suspect": state.invocation if _edited_before(unit, state) else suspect}
        generations.keep(unit)
        receipt.record(author, units=known)
        _lay_down(unit)
    run(("systemctl", "daemon-reload"))
    running = _running_from_before(wanted, known)
    for name in in_the_way(wanted, running):
        say(f"stopping {name}: another is to have its port")
        run(("systemctl", "stop", name), timeout=120.0)  # twice its TimeoutStopSec
    # First those that are not to come back at boot, then those that run: what they give up, the others may need.
    for unit in sorted(wanted, key=lambda one: (not one.standby, one.name not in running)):
        if unit.standby:
            _ensure_waiting(unit)
        else:
            _ensure_running(unit, known[unit.name]["suspect"])


def _running_from_before(wanted: tuple[Unit, ...], known: dict[str, Any]) -> dict[str, int]:
    """Units that run and are to be restarted, with the port that they were started on; 0 where nobody knows it."""
    found = {}
    for unit in wanted:
        (state,) = look((unit.name,))
        if state.active not in ("inactive", "failed") and stale(state, unit, known[unit.name]["suspect"]):
            found[unit.name] = 0
            with contextlib.suppress(HostError):
                found[unit.name] = generations.load(unit.name, state.digest).port
    return found


def in_the_way(wanted: tuple[Unit, ...], running: dict[str, int]) -> tuple[str, ...]:
    """Which of ``running`` listen on a port that another is to have now: its guard would refuse to start it."""
    ports = {unit.port: unit.name for unit in wanted if unit.port and not unit.standby}
    return tuple(name for name, port in running.items() if ports.get(port, name) != name)


def _lay_down(unit: Unit) -> None:
    for file in unit.files:
        if ensure_file(file):
            say(f"file {file.path}")


def _edited_before(unit: Unit, state: UnitState) -> bool:
    """Whether the running process may have been started from a file that somebody had edited."""
    files = ((file, look_at(file.path)) for file in unit.files if file.starts)
    return any(there and there.sha256 != file.sha256 and there.mtime <= state.started for file, there in files)


def refuse_foreign(wanted: tuple[Unit, ...]) -> None:
    """Raise HostError when a file that is not ours is where one of a wanted unit belongs. Nothing is changed then."""
    for file in (file for unit in wanted for file in unit.files):
        if not is_ours(file.path):
            raise HostError(
                f"{file.path}: a file that is not ours is in the way (it lacks the line '{MARK}'). Move it away, "
                f"or give the recipe another name."
            )


def is_ours(path: str) -> bool:
    """Whether a file carries our mark; what is not there or no file is nobody's."""
    try:
        return MARK in Path(path).read_text(encoding="utf-8", errors="replace")[:2000]
    except OSError:
        return True


def _ensure_waiting(unit: Unit) -> None:
    """It does not start by itself. Where it runs, the start of the one it gives way to stops it."""
    (state,) = look((unit.name,))
    if state.enabled == "enabled":
        run(("systemctl", "disable", unit.name))
        say(f"{unit.name} waits: it does not fit beside what is to run")


def _ensure_running(unit: Unit, suspect: str) -> None:
    (state,) = look((unit.name,))
    if state.enabled != "enabled":
        run(("systemctl", "enable", unit.name))
        say(f"enabled {unit.name}")
    if state.active == "active" and not stale(state, unit, suspect):
        return
    verb = "start" if state.active in ("inactive", "failed") else "restart"
    say(f"{verb}ing {unit.name}: ready when the engine answers")
    with contextlib.suppress(HostError):
        run(("systemctl", "reset-failed", unit.name))
    _drive(verb, unit)


def stale(state: UnitState, unit: Unit, suspect: str) -> bool:
    """Whether a running unit's process was started from something else than what is wanted now.

    Its digest shows that. A start from a file that somebody had edited (``suspect`` is its invocation) makes the
    process suspect whatever its digest says, and so do a release or weights that are newer than it.
    """
    newest = max(release.state(Path(unit.release)).built, _weights_changed(unit))
    return state.digest != unit.digest or state.invocation == suspect or newest > state.started


def _weights_changed(unit: Unit) -> float:
    """When the newest file of the unit's weights was changed."""
    files = receipt.read().get("weights", {}).get(unit.model, {})
    return max((os.stat(Path(files["path"]) / name).st_mtime for name in files.get("files", ())), default=0.0)


def _drive(verb: str, unit: Unit) -> None:
    began = time.time()
    process = subprocess.Popen(
        ("systemctl", verb, unit.name), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace"
    )
    _tell_while(process, unit)
    if process.returncode == 0:
        say(f"{unit.name} serves after {time.time() - began:.0f} s")
        return
    (state,) = look((unit.name,))
    said = process.stderr.read().strip() if process.stderr else ""
    lines = journal.decisive(unit.name, began) or said.splitlines()
    # A unit that cannot start is left stopped: systemd trying again for ever would hide that behind "activating".
    subprocess.run(("systemctl", "stop", unit.name), stdin=subprocess.DEVNULL, capture_output=True, check=False)
    shown = "\n".join(f"    {line}" for line in lines) or "    (its journal is empty)"
    reason = state.result if state.load == "loaded" else f"systemd says {state.load}"
    raise HostError(
        f"{unit.name} did not come to serve ({reason}) and was stopped. What decided it:\n{shown}\n"
        f"  See all of it: journalctl -u {unit.name}"
    )


def _tell_while(process: "subprocess.Popen[str]", unit: Unit) -> None:
    started, told, shown = time.monotonic(), 0.0, ""
    while process.poll() is None:
        time.sleep(0.2)
        if (waited := time.monotonic() - started) - told >= 10:
            told = waited
            said = journal.last(unit.name)
            say(f"{waited:.0f} s of at most {unit.start_timeout} s" + (f": {said}" if said not in ("", shown) else ""))
            shown = said


def retire(name: str, entry: dict[str, Any], why: str = "no recipe of this host any more") -> None:
    """Stop and remove a unit of ours. Raises HostError when one of its files is somebody else's now."""
    if odd := [path for path in entry.get("files", []) if not is_ours(path)]:
        raise HostError(f"{name}: to be removed, but {odd[0]} is not ours any more (it lacks '{MARK}'). Move it away.")
    say(f"removing {name}: {why}")
    subprocess.run(("systemctl", "disable", "--now", name), stdin=subprocess.DEVNULL, capture_output=True, check=False)
    _remove(entry.get("files", []))
    run(("systemctl", "daemon-reload"))


def _remove(paths: Iterable[str]) -> None:
    """Remove files of ours; what is not ours any more stays."""
    for path in filter(is_ours, paths):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
