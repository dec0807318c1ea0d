"""What a look at several hosts says: a verdict for each, and how they compare. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping
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


def parity(
    fleet: Mapping[str, Observed],
    engines: Mapping[str, Mapping[str, str]],
    groups: Mapping[str, Collection[str]],
    addresses: Mapping[str, str],
) -> tuple[Finding, ...]:
    """What differs between hosts that should be alike, and what is alike on hosts that should differ.

    ``engines`` names, by recipe, the release that each host is to run it from; ``groups`` the lists of the inventory
    that each host is in; ``addresses`` where each is connected to. Hosts of one list should be alike; no two hosts at
    all may be twins, and no two names should be those of one machine.
    """
    differences = dict.fromkeys(one for names in _lists(fleet, groups) for one in _differences(fleet, engines, names))
    machines = _machines(fleet, addresses)
    return (*differences, *_aliases(machines, addresses), *_doubles({names[0]: fleet[names[0]] for names in machines}))


def _lists(fleet: Mapping[str, Observed], groups: Mapping[str, Collection[str]]) -> Iterator[list[str]]:
    """The hosts to be compared with each other: those of each list, and those that are in none.

    A list of all hosts counts only where there is no other: pyinfra makes two of its own in every inventory.
    """
    lists: dict[str, list[str]] = {}
    for name in fleet:
        for group in groups.get(name, ()):
            lists.setdefault(group, []).append(name)
    smaller = [names for names in lists.values() if len(names) < len(fleet)]
    yield from smaller
    yield [name for name in fleet if not any(name in names for names in smaller)]


def _differences(
    fleet: Mapping[str, Observed], engines: Mapping[str, Mapping[str, str]], names: Collection[str]
) -> Iterator[Finding]:
    for what, remedy in _ALIKE:
        if found := _apart({name: _value(what, fleet[name]) for name in names}, what):
            yield Finding(f"unequal-{what.lower().replace(' ', '-')}", "warn", found, remedy)
    for recipe, releases in engines.items():
        if found := _apart({name: releases.get(name) for name in names}, f"engine of {recipe}"):
            yield Finding("unequal-engine", "warn", found, "give all hosts of a recipe one engine and one Python")


def _machines(fleet: Mapping[str, Observed], addresses: Mapping[str, str]) -> list[list[str]]:
    """The names of each machine."""
    machines: list[list[str]] = []
    for name in fleet:
        for names in machines:
            if _is_one(fleet, addresses, names[0], name):
                names.append(name)
                break
        else:
            machines.append([name])
    return machines


def _is_one(fleet: Mapping[str, Observed], addresses: Mapping[str, str], name: str, other: str) -> bool:
    """Whether two names are of one machine: they have one address, or all that no two machines have alike.

    Two that were started apart are not, whatever their address: each may be behind a jump host of its own.
    """
    one, two = (fleet[each].machine.system for each in (name, other))
    if one.boot_id and two.boot_id and one.boot_id != two.boot_id:
        return False
    marks = (one.boot_id, one.machine_id, one.host_key)
    return (name in addresses and addresses[name] == addresses.get(other)) or (
        all(marks) and marks == (two.boot_id, two.machine_id, two.host_key)
    )


def _aliases(machines: Iterable[list[str]], addresses: Mapping[str, str]) -> Iterator[Finding]:
    for names in machines:
        if len(names) > 1:
            where = ", ".join(dict.fromkeys(addresses[name] for name in names if name in addresses))
            text = f"{_list(names)} are one machine" + (f" ({where})" if where else "")
            yield Finding("one-machine", "warn", text, "leave one of these names in the inventory")


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


def _apart(values: Mapping[str, str | None], what: str) -> str:
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
