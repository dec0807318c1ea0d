"""Real hosts for the lab tests, in a lab of their own, and a deploy run as a person runs it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab import supplies
from lab.hosts import Lab
from lab.state import Host

HOME = Path(__file__).resolve().parents[2]
LAB = os.environ.setdefault("SPARKFLEET_LAB", "test")

# A shell that runs the tests in its background has them ignore Ctrl-C, and so would all that they start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/lab" in str(item.path):
            item.add_marker("lab")


@dataclass
class Outcome:
    """What a run of pyinfra printed and how it ended."""

    status: int
    said: str
    results: dict[str, Any]

    @property
    def totals(self) -> dict[str, int]:
        return dict(self.results["results"]["totals"])


Deploy = Callable[..., Outcome]


def pyinfra(*arguments: str, cwd: Path = HOME, confirm: bool = False, json_output: bool = True) -> Outcome:
    """Run pyinfra on the lab's inventory; ``confirm`` presses enter instead of passing -y."""
    command = [sys.executable, "-m", "pyinfra", str(HOME / "inventory/lab.py"), *arguments]
    command += [] if confirm or "--dry" in arguments else ["-y"]
    command += ["--json"] if json_output and not confirm else []
    done = subprocess.run(
        command, cwd=cwd, input="\n" if confirm else "", capture_output=True, text=True, timeout=1200, check=False
    )
    results = json.loads(done.stdout) if json_output and not confirm and done.stdout.strip() else {}
    return Outcome(done.returncode, done.stderr + ("" if results else done.stdout), results)


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """The test lab, empty; everything the hosts are given is made first, and taken down at the end."""
    if os.geteuid() != 0:
        pytest.fail("the lab boots machines: run these tests as root")
    supplies.make(print)
    lab = Lab(LAB)
    lab.down()
    yield lab
    lab.down()


class Spark:
    """A lab host as tests look at it: from inside, without SSH."""

    def __init__(self, lab: Lab, host: Host) -> None:
        self.lab, self.host, self.name = lab, host, host.name

    def sh(self, script: str, check: bool = True, timeout: float = 120) -> str:
        return self.lab.run(self.host, ["bash", "-c", script], check=check, timeout=timeout).stdout.strip()

    def show(self, unit: str, *properties: str) -> dict[str, str]:
        shown = self.sh(f"systemctl show {unit} --property={','.join(properties)}")
        return dict(line.split("=", 1) for line in shown.splitlines())

    def process(self, unit: str) -> dict[str, str]:
        """What changes when a unit is restarted."""
        return self.show(unit, "MainPID", "InvocationID", "ActiveState")

    def sessions(self) -> int:
        """SSH sessions that sshd has started so far, counted on the host's side."""
        return int(self.sh("journalctl --output=cat --no-pager | grep -c '^Starting session:' || true"))

    def files(self) -> set[str]:
        """Every file of the host's disk: owner, mode, size, inode, time; but what a machine writes by itself."""
        busy = ("/run", "/var/log/journal", "/var/log/wtmp", "/var/log/lastlog", "/var/lib/systemd/timers")
        each_boot = "'/var/tmp/systemd-private-*'"  # services' own, called by the boot: a power cut leaves another name
        skip = " -o ".join(f"-path {path}" for path in (*busy, each_boot))
        return set(self.sh(f"find / -xdev \\( {skip} \\) -prune -o -printf '%p %U:%G %m %s %i %T@\\n'").splitlines())


@pytest.fixture(scope="session")
def sparks(lab: Lab) -> list[Spark]:
    """Two good Sparks, for all tests that leave them as they found them."""
    hosts = lab.up(2)
    for host in hosts:  # as on any machine in use: sudo leaves a file in a user's home the first time
        subprocess.run(lab.ssh(host, "sudo -n true"), check=True)
    return [Spark(lab, host) for host in hosts]
