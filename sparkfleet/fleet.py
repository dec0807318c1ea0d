"""What a look at several hosts says: a verdict for each, and how they compare. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from sparkfleet.agent.shapes import Finding, Observed

Verdict = Literal["ready", "ready with warnings", "blocked", "not reached"]

#: What must be alike on Sparks that work together, and what is done where it is not.
_ALIKE = (
    ("driver", "one Spark with another driver made a pair 2.4 times slower (one reporter): bring all to one"),
    ("kernel", "bring all to one, and look whether each has the driver's module for it"),
    ("DGX OS", "bring all to one release through the DGX Dashboard"),
)
_TWINS = (
    ("machine-id", "give each its own: `sudo rm /etc/machine-id && sudo systemd-machine-id-setup`, then reboot"),
    ("SSH host key", "make new ones: `sudo rm /etc/ssh/ssh_host_* && sudo dpkg-reconfigure openssh-server`"),
)


def verdict(seen: Observed | None, trouble: str = "") -> Verdict:
    """May this host serve. ``trouble`` is why it could not be asked, or may not be changed, other than by a finding."""
    if trouble or seen is None or seen.blocked:
        return "blocked"
    return "ready with warnings" if any(one.severity == "warn" for one in seen.findings) else "ready"


def parity(fleet: Mapping[str, Observed], engines: Mapping[str, Mapping[str, str]]) -> tuple[Finding, ...]:
    """What differs between hosts that should be alike, and what is alike on hosts that should differ.

    ``engines`` names, by recipe, the release that each host is to run it from.
    """
    return (*_differences(fleet, engines), *_doubles(fleet))


def _differences(fleet: Mapping[str, Observed], engines: Mapping[str, Mapping[str, str]]) -> Iterator[Finding]:
    for what, remedy in _ALIKE:
        values = {name: _value(what, seen) for name, seen in fleet.items()}
        if found := _groups(values, what):
            yield Finding(f"unequal-{what.lower().replace(' ', '-')}", "warn", found, remedy)
    for recipe, releases in engines.items():
        if found := _groups(releases, f"engine of {recipe}"):
            yield Finding("unequal-engine", "warn", found, "give all hosts of a recipe one engine and one Python")


def _doubles(fleet: Mapping[str, Observed]) -> Iterator[Finding]:
    for what, remedy in _TWINS:
        hosts: dict[str, list[str]] = {}
        for name, seen in fleet.items():
            if value := _value(what, seen):
                hosts.setdefault(value, []).append(name)
        for names in hosts.values():
            if len(names) > 1:
                text = f"{', '.join(sorted(names))} have one {what}: images of some makers were copied with it"
                yield Finding(f"one-{what.lower().replace(' ', '-')}", "warn", text, remedy)


def _value(what: str, seen: Observed) -> str | None:
    machine = seen.machine
    return {
        "driver": machine.gpu.driver or machine.driver.module,
        "kernel": machine.kernel.running,
        "DGX OS": machine.release.ota,
        "machine-id": machine.system.machine_id,
        "SSH host key": machine.system.host_key,
    }[what]


def _groups(values: Mapping[str, str | None], what: str) -> str:
    """``driver: 580.142 on spark-01, spark-02; 580.159.03 on spark-03``, nothing when all that is known is alike."""
    hosts: dict[str, list[str]] = {}
    for name, value in values.items():
        if value is not None:
            hosts.setdefault(value, []).append(name)
    if len(hosts) < 2:
        return ""
    return f"{what} differs: " + "; ".join(f"{value} on {_list(names)}" for value, names in sorted(hosts.items()))


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
