"""Each reason not to touch a machine is found, and a good machine has none."""

from typing import Any

import pytest

from sparkfleet.agent.facts.shapes import Disk, Gpu
from sparkfleet.agent.facts.source import version_key
from sparkfleet.agent.preflight import judge
from sparkfleet.agent.shapes import DiskNeed
from tests.unit.builders import GIB, machine, requirements


def rules(needs: Any = None, present: frozenset[str] = frozenset(), **changes: Any) -> list[tuple[str, str]]:
    findings = judge(machine(**changes), needs or requirements(), present)
    assert all(finding.what and finding.remedy for finding in findings)
    return [(finding.rule, finding.severity) for finding in findings]


def test_a_good_spark_has_nothing() -> None:
    assert rules() == []


@pytest.mark.parametrize("driver", ["580.142", "580.159.03", "580.173.02", "590.48.01"])
def test_the_minimum_and_newer_drivers_pass(driver: str) -> None:
    assert rules(gpu=Gpu("ok", "NVIDIA GB10", "12.1", driver), driver__module=driver) == []


@pytest.mark.parametrize("driver", ["580.95.05", "580.126.09", "575.57.08"])
def test_older_drivers_stop(driver: str) -> None:
    assert rules(gpu=Gpu("ok", "NVIDIA GB10", "12.1", driver), driver__module=driver) == [("driver-too-old", "stop")]


def test_versions_are_numbers_not_text() -> None:
    assert version_key("580.95.05") < version_key("580.142") < version_key("580.142.01") < version_key("590")


@pytest.mark.parametrize("state", ["mismatch", "no-devices", "no-driver", "missing", "timeout", "unreadable"])
def test_a_gpu_that_does_not_answer_stops(state: Any) -> None:
    assert rules(gpu=Gpu(state, detail="text of nvidia-smi")) == [(f"gpu-{state}", "stop")]


@pytest.mark.parametrize(
    ("changes", "rule", "severity"),
    [
        ({"gpu": Gpu("ok", "NVIDIA RTX 4090", "8.9", "580.142")}, "not-a-spark", "stop"),
        ({"gpu": Gpu("ok", "NVIDIA GB10", None, "580.142")}, "not-a-spark", "stop"),
        ({"driver__module": "580.126.09"}, "driver-mismatch", "stop"),
        ({"system__architecture": "x86_64"}, "architecture", "stop"),
        ({"system__systemd": None}, "systemd", "stop"),
        ({"system__systemd": 249}, "systemd", "stop"),
        ({"system__pythons": {"3.10": "/usr/bin/python3.10"}}, "python", "stop"),
        ({"memory__total": 8 * GIB}, "memory", "stop"),
        ({"memory__total": None}, "memory-unknown", "warn"),
        ({"system__clock_skew": -61.0}, "clock", "stop"),
        ({"disks": (Disk("/opt/sparkfleet/releases", 1, 10 * GIB, 20 * GIB, True),)}, "read-only", "stop"),
    ],
)
def test_what_else_is_found(changes: dict[str, Any], rule: str, severity: str) -> None:
    assert rules(**changes) == [(rule, severity)]


def test_a_lab_host_may_have_another_architecture() -> None:
    assert rules(system__architecture="x86_64", lab="good") == []


def test_room_is_needed_only_for_what_is_not_there() -> None:
    needs = requirements(disk=(DiskNeed("/opt/sparkfleet/releases", 4 * GIB, "release x", "x"),))
    full = (Disk("/opt/sparkfleet/releases", 1, GIB, 20 * GIB, False),)
    assert rules(needs, disks=full) == [("disk", "stop")]
    assert rules(needs, frozenset({"x"}), disks=full) == []


def test_needs_on_one_disk_are_added_up() -> None:
    places = ("/opt/sparkfleet/releases", "/var/lib/sparkfleet/models")
    needs = requirements(disk=tuple(DiskNeed(place, 40 * GIB, f"need of {place}", place) for place in places))
    one = tuple(Disk(place, 1, 65 * GIB, 100 * GIB, False) for place in places)
    two = tuple(Disk(place, number, 65 * GIB, 100 * GIB, False) for number, place in enumerate(places))
    assert rules(needs, disks=one) == [("disk", "stop")]
    assert rules(needs, disks=two) == []
    assert rules(needs, frozenset({places[0]}), disks=one) == []
