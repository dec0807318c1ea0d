"""What one look at a host costs that host: everything a deploy wants to know, asked in one exec.

    sudo .venv/bin/python benchmarks/observe.py      (with a lab up that was deployed to)

Times an SSH login that runs `true`, and one that runs the very command of a deploy with its very question, in turns;
the difference is the host's. CPU is what the host's processors spent on the command, Python's start included; a busy
machine stretches the wall time and hardly that.
"""

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from lab.hosts import DEFAULT, Lab
from lab.state import Host

HOME = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(HOME))  # roles are not a part of the package

from roles._lib import render  # noqa: E402
from sparkfleet.agent import wire  # noqa: E402
from sparkfleet.agent.__main__ import ANSWER  # noqa: E402
from sparkfleet.agent.shapes import Author, Observed  # noqa: E402
from sparkfleet.bundle import installed_agent  # noqa: E402
from sparkfleet.desired import question  # noqa: E402
from sparkfleet.inventory import hosts  # noqa: E402
from sparkfleet.plan import plan_host  # noqa: E402


@click.command()
@click.option("--repeat", default=15, show_default=True, help="Turns; the median is printed.")
def main(repeat: int) -> None:
    """Measure one look at the first host of the lab."""
    lab = Lab(os.environ.get("SPARKFLEET_LAB", DEFAULT))
    if not lab.hosts():
        raise click.ClickException("no lab is up: sparkfleet lab up, then deploy to it")
    host = lab.hosts()[0]
    data = hosts(str(HOME / "inventory/lab.py"))[host.name]
    wanted = render.desired_of(plan_host(host.name, data))
    asked = wire.encode(question(wanted, time.time(), Author("benchmark", "benchmark"), adopt=False)) + "\n"
    seen = _observe(lab, host, asked)
    if len([one for one in seen.releases if one.sealed]) < len(wanted.releases):
        raise click.ClickException("the engine is not built on that host: deploy to it first")
    empty, whole = [], []
    for _ in range(repeat):
        empty.append(_timed(lab.ssh(host, "true"), ""))
        whole.append(_timed(_command(lab, host), asked))
    cpu = statistics.median(_cpu(lab, host, asked) for _ in range(repeat))
    table = Table("ssh true ms", "one look ms", "of the host ms", "CPU of the host ms", box=None)
    numbers = (statistics.median(empty), statistics.median(whole))
    table.add_row(*(f"{1000 * number:.0f}" for number in (*numbers, numbers[1] - numbers[0], cpu)))
    Console().print(table)
    Console().print(f"load of this machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")


def _command(lab: Lab, host: Host) -> list[str]:
    return lab.ssh(host, f"sudo -n sh -c '{_quoted(installed_agent('observe'))}'")


def _quoted(command: str) -> str:
    return command.replace("'", "'\\''")


def _observe(lab: Lab, host: Host, asked: str) -> Observed:
    done = subprocess.run(_command(lab, host), input=asked, capture_output=True, text=True, check=False)
    if ANSWER not in done.stdout:
        raise click.ClickException(f"{host.name} has another agent or none: deploy to it first. {done.stdout[-300:]}")
    return wire.decode(Observed, done.stdout.partition(ANSWER)[2])


def _timed(command: list[str], standard_input: str) -> float:
    started = time.monotonic()
    subprocess.run(command, input=standard_input, capture_output=True, text=True, check=True)
    return time.monotonic() - started


def _cpu(lab: Lab, host: Host, asked: str) -> float:
    """Seconds of processor time, the children's included."""
    run = f"TIMEFORMAT='%U %S'; time sh -c '{_quoted(installed_agent('observe'))}' >/dev/null"
    said = lab.run(host, ["bash", "-c", run], stdin=asked).stderr
    return sum(float(number) for number in said.split()[-2:])


if __name__ == "__main__":
    main()
