"""What a deploy costs that has nothing to change, against the least that SSH can do.

    sudo make lab-benchmark        (or: python benchmarks/rerun.py [N ...] with a converged lab up)

For each N it runs the whole deploy on N inventory hosts (names for the hosts of the running lab), and in the same run
one paramiko connection with one exec of the very same command for each. Prints wall time and CPU of this machine's
side, both in seconds, and SSH sessions per host as sshd counted them. The hosts share this machine's cores: wall times
at large N are mostly theirs, CPU is what the control machine itself would spend.
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from lab.hosts import DEFAULT, Lab
from roles._lib import render
from sparkfleet.agent import wire
from sparkfleet.agent.shapes import Author
from sparkfleet.desired import question
from sparkfleet.inventory import hosts
from sparkfleet.plan import plan_host

HOME = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(HOME))  # roles are not a part of the package

_INVENTORY = """
import runpy
_real = runpy.run_path({lab!r})["sparks"]
sparks = [(f"host-{{i:02}}", _real[i % len(_real)][1]) for i in range({count})]
"""


@click.command()
@click.argument("counts", nargs=-1, type=click.IntRange(1))
@click.option("--repeat", default=3, show_default=True, help="Runs of each; the median is printed.")
def main(counts: tuple[int, ...], repeat: int) -> None:
    """Measure the no-change deploy at COUNTS inventory hosts (1 8 32 64)."""
    lab = Lab(os.environ.get("SPARKFLEET_LAB", DEFAULT))
    if not lab.hosts():
        raise click.ClickException("no lab is up: sparkfleet lab up, then deploy to it")
    for host in lab.hosts():  # one sshd stands for many: it must not turn away the logins of thirty at once
        allow = "echo MaxStartups 500 > /etc/ssh/sshd_config.d/benchmark.conf && systemctl reload ssh"
        lab.run(host, ["sh", "-c", allow])
    asked = _question()
    table = Table("hosts", "deploy s", "CPU s", "sessions/host", "SSH alone s", "CPU s", "ratio", box=None)
    for count in counts or (1, 8, 32, 64):
        with tempfile.NamedTemporaryFile("w", suffix=".py", dir=HOME / "inventory", prefix="benchmark_") as inventory:
            inventory.write(_INVENTORY.format(lab=str(HOME / "inventory/lab.py"), count=count))
            inventory.flush()
            deploy = [sys.executable, "-m", "pyinfra", "-y", inventory.name, "deploy.py"]
            floor = [sys.executable, str(HOME / "benchmarks/floor.py"), inventory.name, asked]
            before = _sessions(lab)
            runs = [_measure(deploy) for _ in range(repeat)]
            sessions = (_sessions(lab) - before) / repeat / count
            floors = [_measure(floor) for _ in range(repeat)]
        (wall, cpu), (least, least_cpu) = (_median(runs), _median(floors))
        numbers = (wall, cpu, sessions, least, least_cpu, wall / least)
        table.add_row(str(count), *(f"{number:.2f}" for number in numbers))
    Console().print(table)


def _question() -> str:
    """What the deploy asks a host of the lab."""
    (name, data), *_ = hosts(str(HOME / "inventory/lab.py")).items()
    wanted = render.desired_of(plan_host(name, data))
    return wire.encode(question(wanted, time.time(), Author("benchmark", "benchmark"), adopt=False))


def _measure(command: list[str]) -> tuple[float, float]:
    started, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=HOME, capture_output=True, text=True, check=False)
    wall, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise click.ClickException(f"{' '.join(command[1:])} failed:\n{done.stderr[-2000:]}")
    if "deploy.py" in command and " changed" in done.stderr.rpartition("--> sparkfleet:")[2]:
        raise click.ClickException("the lab was not converged: deploy to it first, then measure")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _median(runs: list[tuple[float, float]]) -> tuple[float, float]:
    return statistics.median(wall for wall, _ in runs), statistics.median(cpu for _, cpu in runs)


def _sessions(lab: Lab) -> int:
    count = "journalctl --output=cat --no-pager | grep -c '^Starting session:'"
    return sum(int(lab.run(host, ["sh", "-c", count]).stdout) for host in lab.hosts())


if __name__ == "__main__":
    main()
