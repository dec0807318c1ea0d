"""Every known issue is found where it is, and a good Spark has none."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkfleet.agent.checks import preflight, rules
from sparkfleet.agent.facts.shapes import (
    Disk,
    Driver,
    Fabric,
    FabricPort,
    Gpu,
    GpuProcess,
    Kernel,
    PortOwner,
    Processes,
    Toolchain,
)
from sparkfleet.agent.shapes import Clause, Condition, DiskNeed, Finding
from sparkfleet.catalog import issues
from tests.unit.builders import GIB, machine, requirements

OURS = "vllm-tiny-llama.service"
BOOTS = "6.17.0-1014-nvidia"


def findings(needs: Any = None, present: frozenset[str] = frozenset(), **changes: Any) -> dict[str, Finding]:
    case = preflight.case(machine(**changes), needs or requirements(), present, {OURS})
    found = rules.judge(issues.rules(), case)
    assert all("{" not in one.what + one.remedy for one in found)
    return {one.rule: one for one in found}


def port(**changes: Any) -> FabricPort:
    values: dict[str, Any] = {
        "interface": "enp1s0f0np0",
        "device": "rocep1s0f0",
        "twin": "enP2p1s0f0np0",
        "state": "up",
        "rate": "200 Gb/sec (2X NDR)",
        "speed": 200_000,
        "mtu": 9000,
        "addresses": ("203.0.113.11/25",),
    }
    return FabricPort(**values | changes)


def processes(**changes: Any) -> Processes:
    return Processes(**{"guards": (), "servers": (), "dpkg": None, "ports": (), "gpu": ()} | changes)


def file_system(**changes: Any) -> tuple[Disk, ...]:
    values = {"path": "/", "device": 1, "free": 9 * GIB, "total": 20 * GIB, "read_only": False, "files_free": 10**6}
    return (Disk(**values | changes),)


NO_TOOLS = Toolchain(None, False, None, None, None, None)
TWINS = Fabric((port(), port(interface="enP2p1s0f0np0", addresses=("203.0.113.12/25",))), 2)
TOO_MUCH = requirements(disk=(DiskNeed("/", 40 * GIB, "release x", "x"),))


def gpu(**changes: Any) -> Gpu:
    return Gpu(**{"state": "ok", "name": "NVIDIA GB10", "compute_capability": "12.1", "driver": "580.142"} | changes)


#: rule -> what of a healthy Spark is otherwise (or of what is asked of it), for the rule to speak
CASES: dict[str, dict[str, Any]] = {
    "gpu-mismatch": {"gpu": Gpu("mismatch", detail="Driver/library version mismatch")},
    "gpu-no-devices": {"gpu": Gpu("no-devices", detail="No devices were found")},
    "gpu-no-module": {"gpu": Gpu("no-driver", detail="text"), "kernel": Kernel(BOOTS, False, BOOTS, True, None)},
    "gpu-no-driver": {"gpu": Gpu("no-driver", detail="text")},
    "gpu-missing": {"gpu": Gpu("missing", detail="nvidia-smi: command not found")},
    "gpu-timeout": {"gpu": Gpu("timeout", detail="no answer")},
    "gpu-unreadable": {"gpu": Gpu("unreadable", detail="noise")},
    "not-a-spark": {"gpu": gpu(compute_capability="8.9", name="NVIDIA GeForce RTX 4090")},
    "architecture": {"system__architecture": "x86_64"},
    "no-dgx-release": {"release__name": None},
    "driver-too-old": {"gpu": gpu(driver="575.57.08"), "driver__module": "575.57.08"},
    "driver-known-bad": {"gpu": gpu(driver="580.126.09"), "driver__module": "580.126.09"},
    "driver-newer-than-known": {"gpu": gpu(driver="610.1.2"), "driver__module": "610.1.2"},
    "driver-mismatch": {"driver": Driver("580.126.09", "mismatch", None, None, (), 0, ())},
    "driver-waits-for-reboot": {"driver__package": "580.173.02"},
    "driver-not-open": {"driver__branch": "580"},
    "driver-options": {"driver__options": ("zz-nvidia-drm-override.conf",)},
    "gsp-timeout": {"driver__xids": (13, 119)},
    "gpu-fell-off": {"driver__xids": (79,)},
    "gpu-memory-refused": {"driver__refusals": 3},
    "next-kernel-without-driver": {"kernel": Kernel(BOOTS, True, "6.17.0-1021-nvidia", False, None)},
    "reboot-required": {"system__reboot_required": True, "system__reboot_packages": ("linux-base",)},
    "kernel-handover": {"kernel__running": "7.0.0-1019-nvidia"},
    "cma-starved": {"memory__cma_free": 1},
    "memory-unknown": {"memory__total": None},
    "memory": {"memory__total": 8 * GIB},
    "gpu-strangers": {"processes": processes(gpu=(GpuProcess(7, "python3", 30 * GIB, "user.scope"),))},
    "gpu-processes-unknown": {"processes": processes(gpu=None)},
    "no-swap": {"memory__swap_total": 0},
    "other-guard": {"processes": processes(guards=("earlyoom",))},
    "ray-monitor": {"processes": processes(servers=("raylet",))},
    "other-server": {"processes": processes(servers=("ollama",))},
    "read-only": {"disks": file_system(read_only=True)},
    "disk-full": {"disks": file_system(free=0)},
    "files-full": {"disks": file_system(files_free=3)},
    "disk": {"disks": file_system(), "needs": TOO_MUCH},
    "root-caches": {"system__root_caches": ("/home/ann/.cache/huggingface",)},
    "systemd": {"system__systemd": None},
    "python": {"system__pythons": {"3.10": "/usr/bin/python3.10"}},
    "clock": {"system__clock_skew": -61.0},
    "port-taken": {"processes": processes(ports=(PortOwner(8000, 7, "python3", "foreign.service"),))},
    "dpkg-busy": {"processes": processes(dpkg="unattended-upgr")},
    "other-maker": {"release__platform": "GX10"},
    "old-release": {"release__ota": "7.4.0"},
    "own-name-is-loopback": {"fabric": Fabric((port(),), 1), "system__own_address": "127.0.1.1"},
    "no-compiler": {"toolchain": NO_TOOLS},
    "no-python-headers": {"toolchain": NO_TOOLS},
    "no-nvcc": {"toolchain": NO_TOOLS},
    "no-ninja": {"toolchain": NO_TOOLS},
    "no-ptxas": {"toolchain": NO_TOOLS},
    "ptxas-too-old": {"toolchain__ptxas_sm_121a": False, "toolchain__ptxas": "12.8"},
    "power-wedge": {"gpu": gpu(utilization=99, clock=721)},
    "heat": {"gpu": gpu(temperature=88)},
    "no-cable": {"fabric": Fabric((port(state="down"),), 0)},
    "fabric-slow": {"fabric": Fabric((port(speed=40_000),), 1)},
    "fabric-mtu": {"fabric": Fabric((port(mtu=1500),), 1)},
    "fabric-one-network": {"fabric": TWINS},
}


def test_a_good_spark_has_nothing() -> None:
    assert findings(fabric=Fabric((port(),), 1)) == {}


def test_every_rule_has_a_case() -> None:
    assert set(CASES) == {rule.id for rule in issues.rules()}


@pytest.mark.parametrize("rule", CASES)
def test_each_issue_is_found(rule: str) -> None:
    found = findings(**CASES[rule])
    assert rule in found
    assert "unknown" not in found[rule].what or rule in ("systemd",), found[rule].what


def test_nothing_that_is_unknown_is_held_against_a_machine() -> None:
    silent = {"gpu-missing", "memory-unknown", "no-swap", "no-cable", "systemd", "python"}
    blank = {"total": None, "available": None, "cma_total": None, "cma_free": None, "swap_total": None}
    changes: dict[str, Any] = {f"memory__{name}": value for name, value in blank.items()}
    changes |= {
        "gpu": Gpu("missing", detail="nvidia-smi: command not found"),
        "kernel": Kernel("x", None, None, None, None),
    }
    changes |= {"driver": Driver(None, "unknown", None, None, None, None, ()), "processes": processes(gpu=None)}
    changes |= {"release__ota": None, "release__platform": None, "release__name": None}
    assert set(findings(**changes)) <= silent


@pytest.mark.parametrize("driver", ["580.142", "580.159.03", "580.173.02", "590.48.01"])
def test_the_minimum_and_newer_drivers_pass(driver: str) -> None:
    found = findings(gpu=gpu(driver=driver), driver__module=driver, driver__package=driver)
    assert set(found) == {"no-cable"}


@pytest.mark.parametrize("driver", ["580.95.05", "580.126.09", "575.57.08"])
def test_older_drivers_stop(driver: str) -> None:
    found = findings(gpu=gpu(driver=driver), driver__module=driver, driver__package=driver)["driver-too-old"]
    assert found.severity == "stop"
    assert found.what == f"driver: expected 580.142 or newer (the policy), found {driver}"


def test_a_lab_host_may_have_another_architecture() -> None:
    assert "architecture" not in findings(system__architecture="x86_64", lab="good")


def test_our_own_units_may_hold_ports_and_the_gpu() -> None:
    mine = processes(ports=(PortOwner(8000, 7, "python3", OURS),), gpu=(GpuProcess(7, "VLLM", 90 * GIB, OURS),))
    assert set(findings(processes=mine)) == {"no-cable"}


def test_room_is_needed_only_for_what_is_not_there() -> None:
    assert "disk" in findings(TOO_MUCH, disks=file_system())
    assert "disk" not in findings(TOO_MUCH, frozenset({"x"}), disks=file_system())


def test_needs_on_one_disk_are_added_up() -> None:
    places = ("/opt/sparkfleet/releases", "/var/lib/sparkfleet/models")
    needs = requirements(disk=tuple(DiskNeed(place, 40 * GIB, f"need of {place}", place) for place in places))
    one = tuple(Disk(place, 1, 65 * GIB, 100 * GIB, False) for place in places)
    two = tuple(Disk(place, number, 65 * GIB, 100 * GIB, False) for number, place in enumerate(places))
    assert "disk" in findings(needs, disks=one)
    assert "disk" not in findings(needs, disks=two)
    assert "disk" not in findings(needs, frozenset({places[0]}), disks=one)


def test_a_place_mounted_read_only_is_seen_though_its_device_is_not() -> None:
    found = findings(disks=(*file_system(), *file_system(path="/opt/sparkfleet/releases", read_only=True)))
    assert found["read-only"].what == "disk: the file system of /opt/sparkfleet/releases is read-only"


def test_a_file_system_is_reported_once() -> None:
    paths = ("/", "/tmp", "/opt/sparkfleet", "/opt/sparkfleet/releases")
    disks = tuple(Disk(path, int(path == "/tmp"), GIB, 20 * GIB, True) for path in paths)
    case = preflight.case(machine(disks=disks), requirements(), (), ())
    assert [one.paths for one in case.file_systems] == ["/", "/tmp"]


UNKNOWN = Clause("gpu.name", "is", "x")
TRUE, FALSE = Clause("gpu.state", "is", "ok"), Clause("gpu.state", "is", "missing")
VALUES = {UNKNOWN: None, TRUE: True, FALSE: False}


@given(st.lists(st.sampled_from([UNKNOWN, TRUE, FALSE])), st.lists(st.sampled_from([UNKNOWN, TRUE, FALSE])))
def test_what_is_unknown_decides_nothing(every: list[Clause], some: list[Clause]) -> None:
    case = preflight.case(machine(gpu=Gpu("ok")), requirements(), (), ())
    found = rules.holds(Condition(tuple(every), tuple(Condition((one,)) for one in some)), case)
    # whatever the unknown facts turn out to be, a rule that says yes or no now says the same then
    outcomes = set()
    for guess in (True, False):
        known = [guess if VALUES[one] is None else VALUES[one] for one in every]
        either = [guess if VALUES[one] is None else VALUES[one] for one in some]
        outcomes.add(all(known) and (any(either) or not either))
    assert found is None or outcomes == {found}
