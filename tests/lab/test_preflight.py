"""Preflight on real hosts: what each recorded situation comes to, hosts that can hardly be asked, a new driver."""

import json
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from lab import packages, scenarios
from lab.hosts import Lab
from lab.state import Host
from roles._lib import render
from sparkfleet.agent import wire
from sparkfleet.agent.__main__ import ANSWER
from sparkfleet.agent.shapes import Author, Observed
from sparkfleet.bundle import carried_agent
from sparkfleet.desired import question
from sparkfleet.fleet import verdict
from sparkfleet.inventory import hosts
from sparkfleet.plan import plan_host
from tests.lab.conftest import HOME, LAB, Outcome, Spark, pyinfra

NAME = f"{LAB}-pre"[:20]
#: What keeps a file of the root file system open for writing.
WRITERS = "systemd-journald.socket systemd-journald-dev-log.socket systemd-journald-audit.socket systemd-journald"

SPARK_REPOSITORY = "NVIDIA Spark Updates Repository"

#: scenario -> the verdict, and the rules that speak (notes apart)
VERDICTS: dict[str, tuple[str, set[str]]] = {
    "good": ("ready", set()),
    "newer": ("ready", set()),
    "oem": ("ready", set()),
    "reimaged": ("ready", set()),
    "no-cable": ("ready", set()),
    "not-available": ("ready", set()),
    "plain-ubuntu": ("ready with warnings", {"no-dgx-release"}),
    "unknown-driver": ("ready with warnings", {"driver-newer-than-known"}),
    "next-kernel": ("ready with warnings", {"next-kernel-without-driver"}),
    "handover": ("ready with warnings", {"kernel-handover", "cma-starved"}),
    "torn": ("ready with warnings", {"gsp-timeout", "gpu-memory-refused"}),
    "throttled": ("ready with warnings", {"power-wedge", "heat"}),
    "old-driver": ("blocked", {"driver-too-old", "driver-known-bad"}),
    "first-update": ("blocked", {"driver-too-old", "driver-known-bad"}),
    "half-upgraded": ("blocked", {"driver-mismatch"}),
    "mismatch": ("blocked", {"gpu-mismatch"}),
    "no-devices": ("blocked", {"gpu-no-devices"}),
    "no-driver": ("blocked", {"gpu-no-driver"}),
    "no-nvidia-smi": ("blocked", {"gpu-missing"}),
    "not-a-spark": ("blocked", {"not-a-spark"}),
    "garbage": ("blocked", {"gpu-unreadable"}),
    "slow": ("blocked", {"gpu-timeout"}),
}


@dataclass
class Bench:
    """A lab of its own: the hosts of other tests must not meet what is done to these."""

    lab: Lab
    sparks: list[Spark]
    data: dict[str, Any]

    def deploy(self, *arguments: str, name: str = "deploy.py") -> Outcome:
        return pyinfra(name, "--data", "recipes=[]", *arguments)

    def status(self) -> dict[str, Any]:
        """What a machine is told: one JSON document on standard output and nothing else."""
        return self.deploy(name="tasks/status.py").results


@pytest.fixture(scope="module")
def bench(lab: Lab) -> Iterator[Bench]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARKFLEET_LAB", NAME)
        own = Lab(NAME)
        own.down()
        try:
            sparks = [Spark(own, host) for host in own.up(4)]
            for spark in sparks:  # as on any machine in use: sudo leaves a file in a user's home the first time
                subprocess.run(own.ssh(spark.host, "sudo -n true"), check=True)
            yield Bench(own, sparks, next(iter(hosts(str(HOME / "inventory/lab.py")).values())))
        finally:
            own.down()


def observed(bench: Bench, host: Host) -> Observed:
    """What the agent answers there, by the same command as in a run."""
    wanted = render.desired_of(plan_host(host.name, bench.data | {"recipes": []}))
    command, code = carried_agent("observe")
    asked = wire.encode(question(wanted, time.time(), Author("test", "test"), adopt=False))
    said = bench.lab.run(host, ["sh", "-c", command], stdin=f"{code}\n{asked}\n").stdout
    return wire.decode(Observed, said[said.index(ANSWER) + len(ANSWER) :])


def test_there_is_a_verdict_for_every_situation() -> None:
    assert set(VERDICTS) == set(scenarios.names())


@pytest.mark.parametrize("scenario", VERDICTS)
def test_each_recorded_situation_comes_to_its_verdict(bench: Bench, scenario: str) -> None:
    spark = bench.sparks[0]
    bench.lab.set_scenario(spark.host, scenario)
    seen = observed(bench, spark.host)
    expected, rules = VERDICTS[scenario]
    assert verdict(seen) == expected, seen.findings
    assert {one.rule for one in seen.findings if one.severity != "info"} == rules
    assert all(one.remedy for one in seen.findings)
    assert "NOT-A-SERIAL" not in wire.encode(seen)
    bench.lab.set_scenario(spark.host, "good")


def test_facts_of_a_running_host(bench: Bench) -> None:
    spark = bench.sparks[0]
    spark.sh("systemd-run --quiet --unit=foreign python3 -m http.server --bind 127.0.0.1 8000")
    spark.sh("systemd-run --quiet --unit=hold flock -x /var/lib/dpkg/lock-frontend sleep 60 || true")
    try:
        machine = observed(bench, spark.host).machine
    finally:
        spark.sh("systemctl stop foreign hold || true")
    assert machine.kernel.running == machine.kernel.next == "6.17.0-1014-nvidia"
    assert machine.kernel.running_module is True
    assert machine.gpu.cuda == "13.0" and machine.gpu.memory is None
    assert {port.twin for port in machine.fabric.ports} == {"enp1s0f0np0", "enP2p1s0f0np0"}
    assert all(port.state == "up" and port.mtu == 9000 and port.addresses for port in machine.fabric.ports)
    assert machine.release.ota == "7.5.0" and machine.system.vendor == "NVIDIA"
    assert machine.system.boot_id == spark.sh("cat /proc/sys/kernel/random/boot_id")
    assert machine.toolchain.nvcc is None and machine.toolchain.headers is False
    assert machine.processes.gpu == ()


def test_hosts_that_can_hardly_be_asked_say_so_plainly(bench: Bench) -> None:
    no_python, no_sudo, full, read_only = bench.sparks
    no_python.sh("mv /usr/bin/python3 /root/python3")
    no_sudo.sh("mv /etc/sudoers.d/spark /root/spark")
    full.sh("mkdir -p /opt && mount -t tmpfs -o size=1m full /opt && { cat /dev/zero > /opt/filler || true; }")
    read_only.sh(f"systemctl stop {WRITERS} && mount -o remount,bind,ro /")
    try:
        said = bench.status()["hosts"]
        run = bench.deploy()
        table = pyinfra("tasks/status.py", "--data", "recipes=[]", json_output=False).said
    finally:
        read_only.sh("mount -o remount,bind,rw / && systemctl start systemd-journald")
        full.sh("umount /opt")
        no_sudo.sh("mv /root/spark /etc/sudoers.d/spark")
        no_python.sh("mv /root/python3 /usr/bin/python3")
    assert {one["verdict"] for one in said.values()} == {"blocked"}
    assert "there is no python3. Install it" in said[no_python.name]["trouble"]
    assert "sudo does not let spark become root" in said[no_sudo.name]["trouble"]
    (disk,) = (one for one in said[full.name]["findings"] if one["severity"] == "stop")
    assert disk["rule"] == "disk-full" and "/opt" in disk["what"]
    stops = [one for one in said[read_only.name]["findings"] if one["severity"] == "stop"]
    assert [one["what"] for one in stops] == ["disk: the file system of / is read-only"]
    assert run.status != 0
    for spark in bench.sparks:
        assert f"{spark.name}  blocked, nothing was changed" in run.said
    table = " ".join(table.split())  # lines are folded
    assert "is read-only" in table and "there is no python3" in table


def test_hosts_are_compared(bench: Bench) -> None:
    one, two, *_ = bench.sparks
    bench.lab.set_scenario(two.host, "newer")
    machine_id = two.sh("cat /etc/machine-id")
    two.sh(f"echo {one.sh('cat /etc/machine-id')} > /etc/machine-id")
    try:
        fleet = bench.status()["fleet"]
    finally:
        two.sh(f"echo {machine_id} > /etc/machine-id")
        bench.lab.set_scenario(two.host, "good")
    found = {one["rule"]: one["what"] for one in fleet}
    assert set(found) == {"unequal-driver", "one-machine-id"}
    assert f"580.173.02 on {two.name}" in found["unequal-driver"]
    assert found["one-machine-id"].startswith(f"{one.name}, {two.name} have one machine-id")


def offered(bench: Bench, spark: Spark, **changes: Any) -> None:
    bench.lab.set_scenario(spark.host, "old-driver")
    spark.sh("rm -rf /usr/lib/modules/6.17.0-1014-nvidia/kernel/nvidia-580-open/nvidia.ko /var/lib/apt/lists/*")
    given = {"version": "580.173.02", "label": SPARK_REPOSITORY, "scenario": "newer"} | changes
    packages.offer(bench.lab.root(spark.host), **given)


def installed(spark: Spark) -> str:
    return spark.sh("dpkg-query -W -f '${Version}' nvidia-driver-580-open 2>/dev/null || true")


def test_a_driver_is_installed_only_when_told_and_only_from_the_right_place(bench: Bench) -> None:
    spark = bench.sparks[0]
    only = ("--limit", spark.name)
    install = (*only, "--data", "driver_policy=install")

    offered(bench, spark)
    before = spark.files()
    checked = bench.deploy(*only)
    assert checked.status != 0 and "sudo apt-get install nvidia-driver-580-open" in checked.said
    assert spark.files() ^ before == set(), "nothing is installed unasked"

    offered(bench, spark, label="NVIDIA CUDA")
    refused = bench.deploy(*install)
    assert refused.status != 0
    assert "from NVIDIA CUDA; expected the repository labelled 'NVIDIA Spark Updates Repository'" in refused.said

    offered(bench, spark, with_module=False)
    refused = bench.deploy(*install)
    assert refused.status != 0
    assert "kernel 6.17.0-1014-nvidia boots next, and nothing brings the module of 580.173.02" in refused.said

    offered(bench, spark, version="580.126.10")
    refused = bench.deploy(*install)
    assert refused.status != 0 and "the Spark repository has 580.126.10; wanted 580.142 or newer" in refused.said
    assert installed(spark) == ""


def test_it_asks_for_the_reboot_and_goes_on_after_it(bench: Bench) -> None:
    spark = bench.sparks[0]
    install = ("--limit", spark.name, "--data", "driver_policy=install")
    offered(bench, spark)
    asked = bench.deploy(*install)
    assert asked.status != 0
    assert "the driver is installed: reboot" in asked.said, asked.said
    assert f"{spark.name}  failed at driver (installed; it waits for a reboot)" in asked.said
    assert installed(spark).startswith("580.173.02-")

    waiting = bench.deploy("--limit", spark.name)
    assert waiting.status != 0 and "Driver/library version mismatch" in waiting.said

    boot = spark.sh("cat /proc/sys/kernel/random/boot_id")
    told = bench.deploy(*install, "--data", "driver_reboot=true")
    assert told.status == 0, told.said
    assert "it is back, with driver 580.173.02" in told.said
    assert spark.sh("cat /proc/sys/kernel/random/boot_id") != boot
    assert spark.sh("test -d /opt/sparkfleet/releases && id -u sparkfleet"), "the roles went on after the reboot"
    again = bench.deploy(*install)
    assert again.status == 0 and again.totals["success"] == 0, again.said


def test_the_document_is_one(bench: Bench) -> None:
    said = pyinfra("tasks/status.py", "--data", "recipes=[]")
    assert json.dumps(said.results).count('"verdict"') == len(bench.sparks)
    assert said.results["schema"] == 1
