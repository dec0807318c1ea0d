"""How a status is said in words, for text and page alike."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sparkfleet.status.shapes import FleetStatus, HostStatus, RecipeStatus

#: States and outcomes that are as they should be; those that pass by themselves or wait for a deploy; the rest is bad.
GOOD = frozenset({"ready", "serving", "waits"})
PASSING = frozenset({"ready with warnings", "starting", "stopping", "not deployed", "not verified"})

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"))
_SEVERITIES = {"stop": "stops", "warn": "warning", "info": "note"}

#: Hosts that are named before the rest is counted.
_NAMED = 6


@dataclass(frozen=True)
class Note:
    """Something to be read about hosts; ``kind`` is ``stops``, ``warning``, ``note``, ``drift`` or empty."""

    hosts: tuple[str, ...]
    kind: str
    what: str
    remedy: str


def duration(seconds: float | None) -> str:
    """``45s``, ``12m``, ``3h``, ``5d``; nothing for what is not known."""
    if seconds is None:
        return ""
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"


def requests(one: RecipeStatus, waiting: str = ", {} wait") -> str:
    """Requests that run, and those that wait if any do."""
    if one.running is None:
        return ""
    return f"{one.running}{waiting.format(one.waiting)}" if one.waiting else str(one.running)


def kv_use(one: RecipeStatus) -> str:
    """The KV cache's use in percent: nought only when it is empty."""
    if one.kv_use is None:
        return ""
    return "<1%" if 0 < one.kv_use < 0.01 else f"{one.kv_use:.0%}"


def verified(one: RecipeStatus) -> str:
    """When this start was verified, and whether that went well."""
    if one.passed is None:
        return "no" if one.since is not None else ""
    return f"{duration(one.verified)} ago" if one.passed else "failed"


def speed(one: RecipeStatus) -> str:
    """Tokens a second."""
    return "" if one.tokens_per_second is None else f"{one.tokens_per_second:.1f}"


def machine(one: HostStatus) -> tuple[str, str, str, str]:
    """Driver, kernel, DGX OS and memory."""
    seen = one.machine
    if seen is None:
        return ("", "", "", "")
    total = seen.memory.total
    memory = "unknown" if total is None else f"{total / 1024**3:.1f} GiB"
    return (seen.gpu.driver or "unknown", seen.kernel.running, seen.release.ota or "unknown", memory)


def summary(status: FleetStatus) -> str:
    """``32 hosts: 30 ready, 2 blocked; 31 of 32 recipes serve``."""
    counts: dict[str, int] = {}
    for one in status.hosts.values():
        counts[one.verdict] = counts.get(one.verdict, 0) + 1
    recipes = [one for host in status.hosts.values() for one in host.recipes if one.state != "waits"]
    serving = sum(one.state == "serving" and one.passed is not False for one in recipes)
    number = len(status.hosts)
    said = f"{number} host{'' if number == 1 else 's'}: " + ", ".join(f"{n} {what}" for what, n in counts.items())
    return said + (f"; {serving} of {len(recipes)} recipes serve" if recipes else "")


def notes(status: FleetStatus) -> list[Note]:
    """All there is to read, what stops first; what is the same on several hosts is said once."""
    told: dict[tuple[str, str, str], list[str]] = {}
    for name, host in status.hosts.items():
        for said in _of(host):
            told.setdefault(said, []).append(name)
    order = ("stops", "", "drift", "warning", "note")
    found = [Note(tuple(hosts), *said) for said, hosts in told.items()]
    found += [Note(("fleet",), _SEVERITIES[one.severity], one.what, one.remedy) for one in status.fleet]
    return sorted(found, key=lambda note: order.index(note.kind))


def _of(host: HostStatus) -> Iterable[tuple[str, str, str]]:
    if host.trouble:
        yield "stops", host.trouble.rstrip("."), ""
    for one in host.findings:
        yield _SEVERITIES[one.severity], one.what, one.remedy
    for recipe in host.recipes:
        if recipe.detail:
            yield "", f"{recipe.recipe} {_is(recipe.state)}: {recipe.detail}", ""
        if recipe.reason:
            yield "", f"{recipe.recipe} failed its verification: {recipe.reason.rstrip('.')}", ""
        if recipe.note:
            yield "note", f"{recipe.recipe}: {recipe.note}", ""
    for drift in host.drift:
        yield "drift", f"{drift.thing}: {drift.cause}", drift.remedy


def _is(state: str) -> str:
    return state if state in ("failed", "differs") else f"is {state}"


def named(hosts: tuple[str, ...], everyone: Mapping[str, object]) -> str:
    """Hosts by name, the first few of many."""
    if len(hosts) > _NAMED and len(hosts) == len(everyone):
        return f"all {len(hosts)} hosts"
    if len(hosts) > _NAMED + 1:
        return f"{', '.join(hosts[:_NAMED])} and {len(hosts) - _NAMED} more"
    return ", ".join(hosts)


def level(word: str) -> str:
    """``good``, ``passing`` or ``bad``."""
    return "good" if word in GOOD else "passing" if word in PASSING else "bad"
