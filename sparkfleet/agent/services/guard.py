"""The guard: the first thing a unit's process does. All is as it was deployed, or the engine does not start.

It runs as the unit's own user in the unit's own sandbox: it needs no more rights than its engine, and sees what that
will see. Then it becomes the engine. It does so in the unit's main process because systemd knows no other way to refuse
a start without trying again (``RestartPreventExitStatus=``).
"""

import json
import os
import pwd
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from .. import ports, receipt
from ..checks import rules
from ..errors import HostError
from ..facts import driver, gpu, kernel, memory
from ..facts.shapes import Driver, Gpu, Kernel
from ..facts.source import lab
from ..models import vocab, weights
from ..releases import release
from ..shapes import Finding, Guard
from ..wire import WireError, build

#: Exit status of a refusal (EX_CONFIG): units do not restart after it.
REFUSED = 78

#: What is said of a start that may go on, before the engine says anything.
PASSED = "all is as it was deployed"

#: What the engine takes before it looks how much memory is free (``sparkfleet.memory.admission.CONTEXT_MARGIN``).
CONTEXT_MARGIN = 3 * 1024**3

#: Seconds that memory may take to come back: an engine that was stopped for this one has just ended.
PATIENCE = 10.0

GIB = 1024**3


@dataclass(frozen=True)
class Case:
    """What the rules of a guard are asked about: the part of ``preflight.Case`` that GPU and driver decide."""

    lab: str | None
    gpu: Gpu
    driver: Driver
    kernel: Kernel
    needs: Guard


def guard(path: str, command: list[str]) -> int:
    """Become ``command`` if all is as ``path`` says; else say why not on standard error and return REFUSED."""
    began = time.monotonic()
    try:
        wanted = read(Path(path))
    except HostError as error:
        return _refuse([Finding("guard", "stop", str(error), "run the deploy again")])
    if findings := list(check(wanted)):
        return _refuse(findings)
    _say(f"{PASSED} ({1000 * (time.monotonic() - began):.0f} ms)")
    try:
        os.execv(command[0], command)
    except OSError as error:
        return _refuse(
            [Finding("engine", "stop", f"{command[0]} cannot be run: {error.strerror}", "run the deploy again")]
        )


def read(path: Path) -> Guard:
    """What must be true. Raises HostError when the file cannot be read or understood."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        content: dict[str, Any] = json.loads("\n".join(line for line in lines if not line.startswith("#")))
        # Written by another version of sparkfleet: what this one does not know is left out.
        known = {field.name for field in fields(Guard)}
        return build(Guard, {key: value for key, value in content.items() if key in known})
    except OSError as error:
        raise HostError(f"{path} cannot be read ({error.strerror or error})") from None
    except (WireError, ValueError, AttributeError) as error:
        raise HostError(f"{path} is not understood ({error})") from None


def check(wanted: Guard, patience: float = PATIENCE) -> Iterator[Finding]:
    """Everything that keeps the engine from starting well."""
    seen = gpu.begin()  # the one answer that takes its time
    yield from _release(wanted)
    yield from _weights(wanted)
    yield from _vocabularies(wanted)
    yield from _port(wanted)
    yield from rules.judge(wanted.rules, _case(wanted, seen()))
    yield from _memory(wanted, patience)


def _case(wanted: Guard, seen: Gpu) -> Case:
    module = driver.loaded()
    return Case(
        lab=lab(),
        gpu=seen,
        driver=Driver(module, driver.agreement(module, seen), None, None, None, None, ()),
        # ProtectKernelModules= hides the modules of the kernel from a unit.
        kernel=Kernel(kernel.running(), None, None, None, None),
        needs=wanted,
    )


def _release(wanted: Guard) -> Iterator[Finding]:
    found = release.state(Path(wanted.release))
    if not found.sealed:
        what = found.problem or "it is not sealed"
        yield Finding("release", "stop", f"release {found.name}: {what}", "run the deploy again: it builds it anew")


def _weights(wanted: Guard) -> Iterator[Finding]:
    try:
        known = receipt.read().get("weights", {})
    except HostError as error:
        yield Finding("receipt", "stop", str(error).rstrip("."), "run the deploy again once the receipt can be read")
        return
    found = weights.look(wanted.weights, known)
    if found.problem:
        yield Finding(
            "weights",
            "stop",
            f"model {found.model}: {found.problem}",
            "run the deploy again: it completes the weights",
        )


def _vocabularies(wanted: Guard) -> Iterator[Finding]:
    if problem := vocab.problem(wanted.vocabularies):
        what = f"vocabularies in {wanted.vocabularies.path}: {problem}"
        yield Finding("vocab", "stop", what, "run the deploy again: it lays them down")


def _port(wanted: Guard) -> Iterator[Finding]:
    holder = ports.holder(wanted.port)
    if holder is not None:
        yield Finding(
            "port",
            "stop",
            f"port {wanted.port}: a process of user {_name(holder)} listens there already",
            f"see which with `sudo ss -ltnp sport = :{wanted.port}`, stop it, then start this unit again",
        )


def _memory(wanted: Guard, patience: float) -> Iterator[Finding]:
    began = time.monotonic()
    while True:
        seen = memory.look()
        total, available = seen.total, seen.available
        if total is None or available is None:
            return  # not a reason to keep it from starting: the deploy has warned of it
        asked = round(wanted.utilization * total) + CONTEXT_MARGIN if wanted.utilization else 0
        if available >= max(wanted.memory, asked):
            return
        if time.monotonic() - began >= patience:
            break
        time.sleep(0.25)
    need = max(wanted.memory, asked)
    yield Finding(
        "memory",
        "stop",
        f"memory: {wanted.recipe} needs {need / GIB:.1f} GiB to start ({wanted.arithmetic}), "
        f"{available / GIB:.1f} GiB of {total / GIB:.1f} GiB are available",
        "stop what takes it (`ps -eo rss,pid,user,args --sort=-rss | head`), then start this unit again",
    )


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _refuse(findings: list[Finding]) -> int:
    for finding in findings:
        _say(f"refused: {finding.what}. Remedy: {finding.remedy}.")
    return REFUSED


def _say(text: str) -> None:
    print(f"sparkfleet guard: {text}", file=sys.stderr, flush=True)
