"""Hosts are compared: what should be alike and is not, what should differ and does not."""

from typing import Any

from sparkfleet.agent.shapes import SCHEMA, Finding, Observed
from sparkfleet.fleet import parity, verdict
from tests.unit.builders import machine


def seen(*findings: Finding, **changes: Any) -> Observed:
    return Observed(SCHEMA, "", machine(**changes), findings, None, None)


def finding(severity: Any) -> Finding:
    return Finding("rule", severity, "what", "remedy")


def test_the_verdict_is_the_worst_finding() -> None:
    assert verdict(seen()) == "ready"
    assert verdict(seen(finding("info"))) == "ready"
    assert verdict(seen(finding("info"), finding("warn"))) == "ready with warnings"
    assert verdict(seen(finding("warn"), finding("stop"))) == "blocked"
    assert verdict(None, "sudo wants a password") == verdict(seen(), "no wheels") == "blocked"


def test_hosts_that_are_alike_and_are_not_twins() -> None:
    fleet = {
        "a": seen(system__machine_id="1", system__host_key="1"),
        "b": seen(system__machine_id="2", system__host_key="2"),
        "c": seen(system__machine_id=None, system__host_key=None, release__ota=None),
    }
    assert parity(fleet, {"r": {"a": "x-1", "b": "x-1"}}, {}, {}) == ()
    assert parity({}, {}, {}, {}) == ()


def test_each_difference_is_told_with_its_hosts() -> None:
    fleet = {
        "a": seen(system__machine_id="1", system__host_key="1"),
        "b": seen(system__machine_id="1", system__host_key="2", gpu__driver="580.173.02", release__ota="7.4.0"),
        "c": seen(system__machine_id="3", system__host_key="2", kernel__running="6.17.0-1021-nvidia"),
    }
    found = {one.rule: one.what for one in parity(fleet, {"r": {"a": "x-1", "c": "x-2"}}, {}, {})}
    assert set(found) == {
        "unequal-driver",
        "unequal-kernel",
        "unequal-dgx-os",
        "unequal-engine",
        "one-machine-id",
        "one-ssh-host-key",
    }
    assert found["unequal-driver"] == "driver differs: 580.142 on a, c; 580.173.02 on b"
    assert found["unequal-engine"] == "engine of r differs: x-1 on a; x-2 on c"
    assert found["one-machine-id"].startswith("a, b have one machine-id")


def test_hosts_of_other_lists_may_differ_and_may_not_be_twins() -> None:
    old, new = {"gpu__driver": "580.142"}, {"gpu__driver": "580.173.02"}
    fleet = {
        "a": seen(system__machine_id="1", **old),
        "b": seen(system__machine_id="2", **old),
        "c": seen(system__machine_id="1", system__boot_id="b1", **new),
        "d": seen(system__machine_id="4", **new),
        "e": seen(system__machine_id="5", **old),
    }
    engines = {"r": {"a": "x-1", "c": "x-2", "d": "x-3"}}
    lists = {"a": ("all", "left"), "b": ("all", "left"), "c": ("all", "right"), "d": ("all", "right"), "e": ("all",)}
    found = [one.what for one in parity(fleet, engines, lists, {})]
    assert [one for one in found if "differs" in one] == ["engine of r differs: x-2 on c; x-3 on d"]
    assert [one for one in found if "machine-id" in one] == [
        "a, c have one machine-id: images of some makers were copied with it"
    ]
    lists["d"] = ("all", "right", "left")
    assert "driver differs: 580.142 on a, b; 580.173.02 on d" in {one.what for one in parity(fleet, engines, lists, {})}
    twice = {name: ("all", "sparks") for name in fleet}
    differences = [one.what for one in parity(fleet, {}, twice, {}) if "differs" in one.what]
    assert differences == ["driver differs: 580.142 on a, b, e; 580.173.02 on c, d"]


def test_two_names_of_one_machine_are_no_twins() -> None:
    fleet = {name: seen() for name in ("b", "a", "c", "d")}
    fleet["c"] = seen(system__boot_id="b1")  # a copy of the others
    fleet["d"] = seen(system__boot_id="b2", system__machine_id="4", system__host_key="4")
    found = parity(fleet, {}, {}, {"a": "192.0.2.11", "b": "spark.local", "c": "192.0.2.12", "d": "192.0.2.12"})
    assert [(one.what, one.remedy) for one in found if one.rule == "one-machine"] == [
        ("a, b are one machine (spark.local, 192.0.2.11)", "leave one of these names in the inventory")
    ]
    assert [one.what.partition(":")[0] for one in found if one.rule != "one-machine"] == [
        "b, c have one machine-id",
        "b, c have one SSH host key",
    ]


def test_one_address_is_one_machine_where_a_host_does_not_say_who_it_is() -> None:
    fleet = {"a": seen(system__boot_id=None), "b": seen(system__host_key=None)}
    assert [one.rule for one in parity(fleet, {}, {}, {"a": "192.0.2.11", "b": "192.0.2.11"})] == ["one-machine"]
    apart = parity(fleet, {}, {}, {"a": "192.0.2.11", "b": "192.0.2.11 port 2222"})
    assert [one.rule for one in apart] == ["one-machine-id"]
