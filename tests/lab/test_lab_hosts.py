"""The lab keeps its promises: real hosts, quickly, apart from each other, and without a trace afterwards."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab import machine, scenarios, state
from lab.cache import cache_dir
from lab.hosts import Lab
from lab.state import Host, Options, Place
from sparkfleet.errors import UserError

pytestmark = pytest.mark.lab
NAME = "test-hosts"
MIB = 1 << 20


def own(traces: set[str]) -> set[str]:
    return {trace for trace in traces if re.search(rf"\b{NAME}\b", trace)}


def alone() -> bool:
    """No other lab is on this machine now."""
    return not [name for name in state.labs() if name != NAME]


def traces() -> set[str]:
    """Everything on this machine that a lab could have left, this lab or another."""
    found = {f"mount {line}" for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    for link in json.loads(subprocess.check_output(["ip", "-json", "link"])):
        found.add(f"link {link.get('ifname')} {link.get('ifalias', '')}")
    for process in Path("/proc").glob("[0-9]*"):
        command = _command(process)
        if "nspawn" in command or "debootstrap" in command:
            found.add(f"process {process.name} {command}")
    for top, depth in (("/run/sparkfleet-lab", 1), ("/run/systemd", 3), ("/sys/fs/cgroup", 4)):
        found |= {f"path {path}" for path in _tree(Path(top), depth)}
    found |= {f"path {path}" for path in _tree(cache_dir() / "hosts", 2)}
    return found


def _command(process: Path) -> str:
    try:
        return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _tree(top: Path, depth: int) -> Iterator[Path]:
    if top.exists():
        yield top
    if depth and top.is_dir() and not top.is_symlink():
        for path in top.iterdir():
            yield from _tree(path, depth - 1)


@pytest.fixture(scope="module")
def untouched() -> set[str]:
    """What was there before; nothing, if other labs come and go meanwhile."""
    Lab(NAME).down()
    return traces() if alone() else set()


@pytest.fixture
def lab(untouched: set[str]) -> Iterator[Lab]:
    """An empty lab of this test's own; whatever the test does, ``down`` must leave nothing of it."""
    lab = Lab(NAME)
    yield lab
    lab.down()
    left = traces()
    assert own(left) == set()
    if untouched and alone():
        assert left == untouched


def log_in(lab: Lab, host: Host, *command: str) -> str:
    done = subprocess.run(lab.ssh(host, *command), capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.strip()


def sparkfleet(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "from sparkfleet.cli import main; main()", "lab", "--lab", NAME, *arguments]


def test_two_hosts_as_a_deploy_meets_them(lab: Lab) -> None:
    lab.up(1)  # the image, if it is not there
    lab.down()
    begun = time.monotonic()
    first, second = lab.up(2, ["good", "old-driver"])
    assert time.monotonic() - begun < 60, "with a cached image, hosts come up in seconds"

    assert log_in(lab, first, "id -un; sudo -n id -un; hostname").split() == ["spark", "root", "spark-01"]
    assert log_in(lab, second, "nvidia-smi --query-gpu=driver_version --format=csv,noheader") == "580.126.09"
    assert log_in(lab, first, "nvidia-smi -L").startswith("GPU 0: NVIDIA GB10")
    assert log_in(lab, first, "cat /etc/sparkfleet-lab/scenario") == "good"
    assert log_in(lab, first, "systemctl is-system-running") == "running"
    assert log_in(lab, first, "ls -d /srv/sparkfleet/*").split() == [
        "/srv/sparkfleet/models",
        "/srv/sparkfleet/wheelhouse",
    ]
    assert log_in(lab, first, "cat /etc/machine-id") != log_in(lab, second, "cat /etc/machine-id")
    sessions = lab.run(first, ["journalctl", "-u", "ssh", "-o", "cat", "--no-pager"]).stdout
    assert sessions.count("Accepted publickey for spark") == 6 + 1  # ours, and the one that waited for it


def test_a_host_has_a_sparks_interfaces_and_no_way_out(lab: Lab) -> None:
    first, second = lab.up(2)
    links = {link["ifname"]: link for link in json.loads(lab.run(first, ["ip", "-json", "addr"]).stdout)}
    assert set(links) == {"lo", "enP7s7", "enp1s0f0np0", "enP2p1s0f0np0"}
    assert set(lab.run(first, ["ls", "/sys/class/net"]).stdout.split()) == set(links)
    assert links["enp1s0f0np0"]["mtu"] == links["enP2p1s0f0np0"]["mtu"] == 9000
    assert lab.run(first, ["ip", "route", "show", "default"]).stdout == ""

    reach = "import socket,sys; socket.create_connection((sys.argv[1], 22), 3).close()"
    for address in second.fabric.values():
        lab.run(first, ["python3", "-c", reach, address])
    for outside in ("192.0.2.1", "203.0.112.1"):
        assert "unreachable" in lab.run(first, ["python3", "-c", reach, outside], check=False).stderr
    to_fabric = ["ip", "-json", "route", "show", "root", "203.0.113.0/24"]
    assert json.loads(subprocess.check_output(to_fabric)) == [], "the fabric is not this machine's"


def test_power_loss_keeps_the_disk(lab: Lab) -> None:
    (host,) = lab.up(1)
    lab.run(host, ["sh", "-c", "echo kept > /var/lib/kept; systemctl start systemd-tmpfiles-clean.timer"])
    before = lab.run(host, ["cat", "/proc/sys/kernel/random/boot_id"]).stdout
    lab.crash(host)
    assert not lab.running(host)
    with pytest.raises(UserError, match="spark-01 is off"):
        lab.run(host, ["true"])
    assert (lab.root(host) / "var/lib/kept").read_text() == "kept\n"
    lab.boot(host)
    assert log_in(lab, host, "cat /var/lib/kept") == "kept"
    assert lab.run(host, ["cat", "/proc/sys/kernel/random/boot_id"]).stdout != before
    assert len(lab.run(host, ["journalctl", "--list-boots", "-q"]).stdout.splitlines()) >= 2


def test_a_reboot_from_inside_comes_back_with_its_addresses(lab: Lab) -> None:
    (host,) = lab.up(1)
    was = machine.leader(host.place)
    lab.run(host, ["systemctl", "reboot"])
    _until(lambda: machine.leader(host.place) not in (None, was))
    lab.wait(host)
    assert log_in(lab, host, "ip -br addr show enP2p1s0f0np0").split()[2] == f"{host.fabric['enP2p1s0f0np0']}/25"


def test_a_pulled_cable_is_seen_and_comes_back(lab: Lab) -> None:
    (host,) = lab.up(1)
    carrier = ["cat", "/sys/class/net/enP7s7/carrier"]
    lab.cut(host)
    assert lab.run(host, carrier).stdout == "0\n"
    assert subprocess.run(lab.ssh(host, "true"), capture_output=True, check=False).returncode == 255
    lab.mend(host)
    assert log_in(lab, host, "cat", "/sys/class/net/enP7s7/carrier") == "1"
    lab.cut(host, "enp1s0f0np0")
    assert log_in(lab, host, "cat", "/sys/class/net/enp1s0f0np0/carrier") == "0"


def test_small_and_read_only_file_systems_and_binds(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "shared").write_text("from outside")
    options = Options(limits={"/opt": 32 * MIB}, read_only=("/usr/local",), binds={"/mnt/in: side": str(tmp_path)})
    (host,) = lab.up(1, options=options)
    full = lab.run(host, ["dd", "if=/dev/zero", "of=/opt/big", "bs=1M"], check=False)
    assert "No space left on device" in full.stderr
    assert "Read-only file system" in lab.run(host, ["touch", "/usr/local/x"], check=False).stderr
    assert lab.run(host, ["cat", "/mnt/in: side/shared"]).stdout == "from outside"
    assert "Read-only file system" in lab.run(host, ["touch", "/mnt/in: side/x"], check=False).stderr
    lab.crash(host)
    lab.boot(host)
    assert lab.run(host, ["ls", "/opt"]).stdout.split() == ["big", "lost+found"]


def test_a_whole_disk_can_be_small(lab: Lab) -> None:
    (host,) = lab.up(1, options=Options(limits={"/": 64 * MIB}))
    assert "No space left" in lab.run(host, ["dd", "if=/dev/zero", "of=/var/big", "bs=1M"], check=False).stderr


def test_a_host_plays_any_scenario_while_it_runs(lab: Lab) -> None:
    (host,) = lab.up(1)
    slow, missing = "slow", "no-nvidia-smi"
    for name in scenarios.names():
        lab.set_scenario(host, name)
        asked = lab.run(host, ["timeout", "2", "nvidia-smi", "-L"], check=False)
        expected = 124 if name == slow else 127 if name == missing else scenarios.load(name)["smi"].get("exit", 0)
        assert asked.returncode == expected, name
    assert lab.host("spark-01").scenario == scenarios.names()[-1]


def test_up_is_idempotent_boots_what_is_off_and_keeps_the_rest(lab: Lab) -> None:
    first, second = lab.up(2)
    lab.crash(second)
    was = machine.leader(first.place)
    again = lab.up(3, ["good", "oem"])
    assert [host.name for host in again] == ["spark-01", "spark-02", "spark-03"]
    assert machine.leader(first.place) == was
    assert log_in(lab, again[1], "grep PLATFORM /etc/dgx-release") == 'DGX_PLATFORM="GX10"'
    assert lab.down(["spark-02"]) == ["spark-02"]
    assert [host.name for host in lab.hosts()] == ["spark-01", "spark-03"]
    assert log_in(lab, again[2], "true") == ""


def test_two_labs_at_once_do_not_meet(lab: Lab) -> None:
    other = Lab(f"{NAME}-2")
    try:
        (here,), (there,) = lab.up(1), other.up(1)
        assert here.address != there.address
        reach = "import socket,sys; socket.create_connection((sys.argv[1], 22), 2).close()"
        fabric = there.fabric["enp1s0f0np0"]
        assert lab.run(here, ["python3", "-c", reach, fabric], check=False).returncode != 0
        lab.down()
        assert log_in(other, there, "hostname") == "spark-01"
    finally:
        other.down()


STAGES: dict[str, Callable[[Place], bool]] = {
    "registered": lambda place: place.record.exists(),
    "connected": lambda place: os.path.ismount(place.netns),
    "disk mounted": lambda place: os.path.ismount(place.root),
    "booting": lambda place: machine.leader(place) is not None,
}


@pytest.mark.parametrize("stage", STAGES)
def test_nothing_stays_of_an_up_that_was_killed(lab: Lab, stage: str) -> None:
    _killed_when(lambda: STAGES[stage](Place(NAME, "spark-02")))
    lab.down()  # the fixture looks for what is left


def test_up_continues_after_one_that_was_killed(lab: Lab) -> None:
    _killed_when(lambda: os.path.ismount(Place(NAME, "spark-01").root))
    for host in lab.up(2):
        assert log_in(lab, host, "systemctl is-system-running") == "running"


def test_remains_of_hosts_nobody_remembers_are_cleared(lab: Lab) -> None:
    """As after a reboot of this machine: /run is empty, the disks are still in the cache."""
    (disk := Place(NAME, "spark-01").disk / "upper/etc").mkdir(parents=True)
    (disk / "hostname").write_text("stale")
    (host,) = lab.up(1)
    assert log_in(lab, host, "hostname") == "spark-01"


def test_the_command_line_from_up_to_down(lab: Lab) -> None:
    subprocess.run(sparkfleet("up", "1", "--scenario", "newer"), check=True, capture_output=True)
    (row,) = json.loads(subprocess.check_output(sparkfleet("list", "--json")))
    assert (row["name"], row["up"], row["scenario"]) == ("spark-01", True, "newer")
    said = subprocess.check_output(sparkfleet("ssh", "spark-01", "--", "echo", "a  b", ";", "$HOME"), text=True)
    assert said == "a  b ; $HOME\n"
    assert subprocess.check_output(sparkfleet("ssh", "spark-01", "nvidia-smi | grep -c Driver"), text=True) == "1\n"
    assert subprocess.check_output(sparkfleet("down"), text=True) == "Gone: spark-01.\n"


def _killed_when(reached: Callable[[], bool]) -> None:
    up = subprocess.Popen(sparkfleet("up", "2"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    _until(lambda: reached() or up.poll() is not None)
    up.kill()
    up.communicate()
    assert up.returncode == -9, "it was finished before it could be killed"


def _until(reached: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.002)


DEBOOTSTRAP = """#!/bin/sh
# Stands in for the real one, which takes a minute: does what has to be undone, and goes on for long.
for target; do case $target in */.building-*) break; esac; done
mkdir -p "$target/proc" && mount -t proc proc "$target/proc"
echo "I: Retrieving InRelease"
echo "$target" > "$STARTED"
sleep 301
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_image_build_ends_with_its_maker(lab: Lab, tmp_path: Path, how: signal.Signals) -> None:
    (program := tmp_path / "bin/debootstrap").parent.mkdir()
    program.write_text(DEBOOTSTRAP)
    program.chmod(0o755)
    started, cache = tmp_path / "started", tmp_path / "cache"
    env = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "STARTED": str(started)}
    env["SPARKFLEET_CACHE"] = str(cache)
    up = subprocess.Popen(sparkfleet("up", "1"), env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    _until(lambda: started.exists() and started.read_text().endswith("\n"))
    up.send_signal(how)
    _, said = up.communicate(timeout=20)
    assert up.returncode == (-9 if how == signal.SIGKILL else 130), said
    _until(lambda: not [p for p in Path("/proc").glob("[0-9]*") if _command(p).startswith("sleep 301")], 10)
    assert not list((cache / "image").glob("bookworm-*")) + list((cache / "image").glob("noble-*"))
    assert str(cache) not in Path("/proc/self/mountinfo").read_text()
    assert "Traceback" not in said
