"""The one fact: the whole observed state of a host, in one exec.

pyinfra reads facts again at every use, so the state is held here, once per host and run, and replaced after a change.
The agent on the host answers if its hash is that of ours; otherwise ours is sent along and runs from memory, so that a
host that has never been seen can be observed without touching it.
"""

import getpass
import subprocess
import sys
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from paramiko import SSHException
from pyinfra import host as _host
from pyinfra.api import StringCommand
from pyinfra.api.host import Host
from pyinfra.connectors.util import CommandOutput

from roles._lib import render
from sparkfleet.agent import wire
from sparkfleet.agent.__main__ import ANSWER
from sparkfleet.agent.shapes import Author, Observed
from sparkfleet.bundle import NO_PYTHON, OTHER_AGENT, carried_agent, installed_agent
from sparkfleet.changes import Change, changes
from sparkfleet.desired import Desired, question, removal
from sparkfleet.plan import HostPlan


@dataclass
class Run:
    """One host in this run: what it should be, what it is, and how far it got.

    ``failed``: the role that it failed at, ``why`` what was said of that; ``refused``: nothing was tried. ``live``: its
    engines are asked, too; ``removing``: what an uninstall would remove is told.
    """

    host: Host
    plan: HostPlan
    wanted: Desired
    seen: Observed | None = None
    trouble: str = ""
    failed: str = ""
    why: str = ""
    refused: bool = False
    mending: bool = False
    live: bool = False
    removing: bool = False
    done: list[Change] = field(default_factory=list)

    def pending(self) -> tuple[Change, ...]:
        """What is still to do, by the state held now; nothing for a host that is blocked."""
        return changes(self.wanted, self.seen) if self.seen and not self.blocked else ()

    @property
    def undeployed(self) -> str:
        """Why there is nobody to ask on this host: none of its recipes has a unit; empty if one has, or it has none."""
        there = {one.name for one in self.seen.units if one.load != "not-found"} if self.seen else set()
        names = [one.recipe for one in self.wanted.units]
        if not names or any(one.name in there for one in self.wanted.units):
            return ""
        verb = "is" if len(names) == 1 else "are"
        return f"{', '.join(names)} {verb} not deployed on this host. Run deploy.py first, with the same inventory."

    @property
    def blocked(self) -> str:
        """Why nothing may be changed on this host; empty if it may."""
        if self.trouble or self.seen is None:
            return self.trouble or "it was not observed"
        stops = [finding for finding in self.seen.findings if finding.severity == "stop"]
        return "\n".join(f"{finding.what}. Remedy: {finding.remedy}." for finding in stops)


_runs: dict[str, Run] = {}


def current() -> Run:
    """The run of the host that pyinfra is busy with."""
    return _runs[_host.name]


def all_runs() -> dict[str, Run]:
    """Every host that was reached, by name."""
    return _runs


def begin(host: Host, plan: HostPlan, adopt: bool, live: bool, removing: bool) -> Run:
    """Observe ``host`` for the first time in this run."""
    run = _runs[host.name] = Run(host, plan, render.desired_of(plan), live=live, removing=removing)
    observe(run, adopt)
    return run


def observe(run: Run, adopt: bool) -> None:
    """Look at the host anew. ``adopt``: the agent may settle there if it passes preflight."""
    leaving = removal(run.plan.uninstall_keeps) if run.removing else None
    asked = question(run.wanted, time.time(), author(), adopt, run.live, leaving)
    answer = ask(run, "observe", wire.encode(asked))
    try:
        run.seen, run.trouble = None, answer
        if answer.startswith(ANSWER):
            run.seen, run.trouble = wire.decode(Observed, answer.removeprefix(ANSWER)), ""
    except wire.WireError as error:  # one host's oddness is no reason to stop the others
        run.trouble = f"the agent answered with something else than the observed state: {error}."


def ask(run: Run, verb: str, asked: str) -> str:
    """What the agent answers to a verb that changes nothing, after ``ANSWER``; or a paragraph on why it does not."""
    answer = _ask(run, installed_agent(verb), [asked])
    if answer == OTHER_AGENT:
        command, code = carried_agent(verb)
        answer = _ask(run, command, [code, asked])
    return answer


def execute(host: Host, command: str, lines: list[str], show: bool) -> tuple[bool, CommandOutput]:
    """Run ``command`` as root with ``lines`` on its standard input; ``show`` prints what it says as it comes.

    Raises ConnectionError when the host cannot be reached any more, PermissionError when sudo wants a password and
    there is nobody to type it.
    """
    as_root = {"_sudo": True, "_sudo_password": host.data.get("_sudo_password")}
    try:
        good, output = host.run_shell_command(StringCommand(command), print_output=show, _stdin=lines, **as_root)
    except (EOFError, OSError, SSHException) as error:
        if isinstance(error, EOFError) and not sys.stdin.isatty() and _is_connected(host):
            raise PermissionError("sudo: a password is required") from None
        raise ConnectionError(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__) from None
    return good, output


def _is_connected(host: Host) -> bool:
    """Whether an SSH connection is still up; others cannot be cut."""
    client = getattr(host.connector, "client", None)
    transport = client.get_transport() if client else None
    return transport.is_active() if transport else True


def _ask(run: Run, command: str, lines: list[str]) -> str:
    """The agent's answer, or a paragraph on why there is none."""
    try:
        good, output = execute(run.host, command, lines, show=False)
    except PermissionError as error:
        return _explain(run.host, False, str(error))
    except ConnectionError as error:
        return f"it could not be asked ({error}). Check the connection, then run again."
    for line in reversed(output.stdout_lines):
        if ANSWER in line:
            return line[line.index(ANSWER) :]
        if OTHER_AGENT in line:
            return OTHER_AGENT
        if NO_PYTHON in line:
            return "there is no python3. Install it (`sudo apt install python3`), then run again."
    return _explain(run.host, good, wire.legible(" ".join(output.output.split())[-400:]))


def _explain(host: Host, good: bool, said: str) -> str:
    user = host.data.get("ssh_user") or "the SSH user"
    if "password is required" in said or "authentication is required" in said or "not in the sudoers" in said:
        return (
            f"sudo does not let {user} become root ({said}). Give {user} NOPASSWD in /etc/sudoers.d, or run "
            f"pyinfra with --use-sudo-password."
        )
    how = "answered with something else than the observed state" if good else "failed"
    # pyinfra reads UTF-8 or nothing: a banner in another character set ends what is heard of a host.
    silence = "nothing was heard of it. If `ssh HOST true` prints anything, take that out of its ~/.bashrc"
    return f"the agent {how}: {said or silence}."


@cache
def author() -> Author:
    """Who deploys: sparkfleet's revision and the person on this machine."""
    home = Path(__file__).resolve().parents[2]
    try:
        said = subprocess.run(
            ("git", "-C", str(home), "describe", "--always", "--dirty"), capture_output=True, text=True, timeout=10
        )
        revision = said.stdout.strip() or "unknown"
    except OSError:
        revision = "unknown"
    return Author(revision, getpass.getuser())
