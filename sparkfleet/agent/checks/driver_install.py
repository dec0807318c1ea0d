"""Install the driver that the policy names: from the Spark repository or not at all.

NVIDIA's own apt preferences keep other repositories' drivers away from a Spark, and DGX OS has no DKMS: a driver from
elsewhere, or one without a module for the kernel that boots next, leaves a Spark without a GPU. So apt's plan is read
first, and carried out only if nothing in it is of that kind.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..command import run, run_logged
from ..errors import HostError
from ..facts import kernel
from ..facts.source import version_key
from ..progress import say
from ..shapes import Author, DriverOrder

#: apt waits this long for whoever holds the package database (four claim it when a Spark boots), in seconds.
PATIENCE = 600

_WAIT = ("-o", f"DPkg::Lock::Timeout={PATIENCE}")
_ENGLISH = ("env", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive", "NEEDRESTART_MODE=l")


@dataclass(frozen=True)
class Candidate:
    """What apt would install: ``sources`` has the priority and the origin of each place that has that version."""

    version: str
    sources: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class Planned:
    """What an installation would do: versions by package, and packages it would take away."""

    installs: Mapping[str, str]
    removes: tuple[str, ...]


def apply(order: DriverOrder, author: Author) -> None:
    """Install ``order.packages``. Raises HostError, with nothing installed, when apt's plan is not as it must be."""
    say("asking apt")
    run((*_ENGLISH, "apt-get", *_WAIT, "-q", "update"), timeout=PATIENCE + 300)
    versions = _versions(order)
    wanted = [f"{name}={version}" for name, version in versions.items()]
    plan = parse_plan(run((*_ENGLISH, "apt-get", "-s", "-y", "--no-remove", "install", *wanted), timeout=300))
    check_plan(plan, versions, kernel.look().next, has_driver)
    _install(order, wanted)
    boots = kernel.look().next
    if boots is None or not has_driver(boots, driver_of(versions)):
        raise HostError(
            f"the driver is installed ({', '.join(wanted)}), and the kernel that boots next ({boots or 'unknown'}) has "
            f"no module of it. Do not reboot before `ls /lib/modules/{boots}/kernel/nvidia-*/nvidia.ko` shows one."
        )
    say(f"driver installed: {', '.join(wanted)}")


def _versions(order: DriverOrder) -> dict[str, str]:
    """The version of each package that apt would take, all of them from the right repository and good enough."""
    labels = parse_labels(run((*_ENGLISH, "apt-cache", "policy")))
    found = parse_candidates(run((*_ENGLISH, "apt-cache", "policy", *order.packages)))
    return {name: check_candidate(name, found.get(name), labels, order) for name in order.packages}


def driver_of(versions: Mapping[str, str]) -> str:
    """The driver that packages of these versions bring; the modules' packages are numbered like kernels."""
    return max((upstream(one) for name, one in versions.items() if name.startswith("nvidia-driver-")), key=version_key)


def parse_labels(content: str) -> dict[str, str]:
    """The label of each of apt's sources, from ``apt-cache policy``."""
    labels: dict[str, str] = {}
    source = ""
    for line in content.splitlines():
        if place := re.fullmatch(r"\s+-?[0-9]+ (\S.*)", line):
            source = place[1].strip()
        elif (release := re.match(r"\s+release (.*)", line)) and source:
            label = re.search(r"(?:^|,)l=(.*?)(?=,[a-z]=|$)", release[1].strip())
            labels[source] = label[1] if label else ""
    return labels


def parse_candidates(content: str) -> dict[str, Candidate]:
    """What apt would take of each package, from ``apt-cache policy NAME...``."""
    found: dict[str, Candidate] = {}
    for part in re.split(r"^(?=\S+:$)", content, flags=re.MULTILINE):
        name = re.match(r"(\S+):$", part, re.MULTILINE)
        candidate = re.search(r"^\s+Candidate: (\S+)$", part, re.MULTILINE)
        if not name or not candidate or candidate[1] == "(none)":
            continue
        table = re.search(
            rf"^ (?:\*\*\*|   ) {re.escape(candidate[1])} -?[0-9]+\n((?:^\s{{6,}}-?[0-9]+ .*\n?)*)", part, re.MULTILINE
        )
        rows = re.findall(r"^\s+(-?[0-9]+) (\S.*)$", table[1] if table else "", re.MULTILINE)
        found[name[1]] = Candidate(candidate[1], tuple((int(priority), source.strip()) for priority, source in rows))
    return found


def check_candidate(name: str, candidate: Candidate | None, labels: Mapping[str, str], order: DriverOrder) -> str:
    """The candidate's version. Raises HostError when it is not of the right repository, or would not help."""
    if candidate is None:
        raise HostError(f"driver: apt knows no package {name}. Is the Spark repository in its sources?")
    remote = [
        (priority, labels.get(source) or "a repository without a label")
        for priority, source in candidate.sources
        if "/dpkg/status" not in source
    ]
    best = max((priority for priority, _ in remote), default=0)
    origins = {label for priority, label in remote if priority == best}
    if origins != {order.repository}:
        raise HostError(
            f"driver: apt would take {name} {candidate.version} from {' and '.join(sorted(origins)) or 'nowhere'}; "
            f"expected the repository labelled {order.repository!r}. Nothing was installed. Mend apt's sources and "
            f"preferences (`apt-cache policy {name}`)."
        )
    version = upstream(candidate.version)
    driver = name.startswith("nvidia-driver-")
    if driver and (version_key(version) < version_key(order.minimum) or version in order.bad):
        raise HostError(
            f"driver: the Spark repository has {version}; wanted {order.minimum} or newer"
            f"{', and not one of ' + ', '.join(order.bad) if order.bad else ''}. Nothing was installed."
        )
    return candidate.version


def parse_plan(content: str) -> Planned:
    """What ``apt-get -s install`` says it would do."""
    installs = re.findall(r"^Inst (\S+)(?: \[[^\]]*\])? \((\S+) ", content, re.MULTILINE)
    return Planned(dict(installs), tuple(re.findall(r"^Remv (\S+)", content, re.MULTILINE)))


def check_plan(plan: Planned, versions: Mapping[str, str], boots: str | None, has: Callable[[str, str], bool]) -> None:
    """Raises HostError when ``plan`` takes something away, or leaves the kernel that boots next without the module.

    ``boots`` is the kernel that boots next now; ``has`` tells whether the disk has the driver's module for one.
    """
    if plan.removes:
        raise HostError(f"driver: apt would remove {', '.join(plan.removes)}. Nothing was installed.")
    kernels = [name.removeprefix("linux-image-") for name in plan.installs if re.match(r"linux-image-[0-9]", name)]
    following = max([*kernels, *([boots] if boots else [])], key=version_key, default=None)
    if following is None:
        raise HostError(
            "driver: it cannot be told which kernel boots next. Nothing was installed. See /etc/default/grub."
        )
    driver = max(
        (upstream(one) for name, one in versions.items() if name.startswith("nvidia-driver-")), key=version_key
    )
    brought = any(re.fullmatch(rf"linux-modules-nvidia-\S+-{re.escape(following)}", name) for name in plan.installs)
    if not brought and not has(following, driver):
        raise HostError(
            f"driver: kernel {following} boots next, and nothing brings the module of {driver} for it. Nothing was "
            f"installed. Wait for the package linux-modules-nvidia-*-{following}: updates come in phases."
        )


def upstream(version: str) -> str:
    """The driver's own version in a package's: 580.142 of 580.142-0ubuntu0.24.04.1."""
    return re.sub(r"^[0-9]+:", "", version).partition("-")[0]


def has_driver(boots: str, driver: str) -> bool:
    """Whether the disk has the module of ``driver`` for a kernel. A compressed one does not say: it must do."""
    return any(_module_version(path) in (None, driver) for path in kernel.modules(boots))


def _module_version(path: Path) -> str | None:
    if path.suffix != ".ko":
        return None
    found = re.search(rb"(?:^|\0)version=([0-9.]{1,30})\0", path.read_bytes())
    return found[1].decode() if found else None


def _install(order: DriverOrder, wanted: Iterable[str]) -> None:
    log = Path(order.log)
    log.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    apt = ("apt-get", *_WAIT, "-q", "-y", "--no-remove", "-o", "Dpkg::Options::=--force-confold", "install", *wanted)
    # In a unit of its own: it must not be cut off half-way when the connection to the control machine is.
    unit = ("systemd-run", "--quiet", "--wait", "--collect", "--pipe", "--unit=sparkfleet-driver")
    say(f"installing {', '.join(wanted)}")
    run_logged((*unit, *_ENGLISH, *apt), log, dict(os.environ))
