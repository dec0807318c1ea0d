"""May this machine be changed? Pure: facts and requirements in, findings out."""

from collections.abc import Iterator

from .facts.shapes import Gpu, Machine
from .facts.source import version_key
from .shapes import Finding, Requirements

GIB = 1024**3

#: What to do about each way nvidia-smi fails to answer.
_GPU_REMEDIES = {
    "mismatch": "the driver was upgraded under the running kernel: reboot, then run again",
    "no-devices": "the driver sees no GPU: power the Spark off for a minute and on again; if it stays so, "
    "look for Xid lines in `journalctl -k`",
    "no-driver": "the kernel module is not loaded: check that linux-modules-nvidia for the running kernel "
    "(`uname -r`) is installed, then reboot",
    "missing": "install the driver's nvidia-utils package from the DGX OS repository",
    "timeout": "the driver hangs: reboot; if it happens again look for Xid lines in `journalctl -k`",
    "unreadable": "run `nvidia-smi` on the host and mend what it reports",
}


def judge(machine: Machine, needs: Requirements, present: frozenset[str]) -> tuple[Finding, ...]:
    """Everything about ``machine`` that stops a deploy or deserves a warning.

    ``present`` names releases and models that are already there and so need no room.
    """
    return (
        *_gpu(machine.gpu, needs),
        *_module(machine),
        *_system(machine, needs),
        *_memory(machine, needs),
        *_disk(machine, needs, present),
        *_clock(machine, needs),
    )


def _gpu(gpu: Gpu, needs: Requirements) -> Iterator[Finding]:
    if gpu.state != "ok":
        yield Finding(f"gpu-{gpu.state}", "stop", f"GPU: {gpu.detail}", _GPU_REMEDIES[gpu.state])
        return
    if gpu.compute_capability != needs.compute_capability:
        yield Finding(
            "not-a-spark",
            "stop",
            f"GPU: expected compute capability {needs.compute_capability} (GB10), "
            f"found {gpu.compute_capability or 'none reported'} ({gpu.name or 'unnamed'})",
            "this is not a DGX Spark: take the host out of the inventory",
        )
    if gpu.driver is None or version_key(gpu.driver) < version_key(needs.driver_minimum):
        yield Finding(
            "driver-too-old",
            "stop",
            f"driver: expected {needs.driver_minimum} or newer, found {gpu.driver or 'none reported'}",
            "upgrade through DGX OS (`sudo apt update && sudo apt full-upgrade`), reboot, then run again",
        )


def _module(machine: Machine) -> Iterator[Finding]:
    loaded, library = machine.driver.module, machine.gpu.driver
    if loaded and library and loaded != library:
        yield Finding(
            "driver-mismatch",
            "stop",
            f"driver: the loaded kernel module is {loaded}, the libraries are {library}",
            "reboot so that the kernel loads the module that matches, then run again",
        )


def _system(machine: Machine, needs: Requirements) -> Iterator[Finding]:
    if machine.system.architecture != needs.architecture and not machine.lab:
        yield Finding(
            "architecture",
            "stop",
            f"architecture: expected {needs.architecture}, found {machine.system.architecture}",
            "this is not a DGX Spark: take the host out of the inventory",
        )
    if machine.system.systemd is None or machine.system.systemd < needs.systemd_minimum:
        found = "no running systemd" if machine.system.systemd is None else f"systemd {machine.system.systemd}"
        yield Finding(
            "systemd",
            "stop",
            f"systemd: expected {needs.systemd_minimum} or newer, found {found}",
            "units need systemd as the running init; use DGX OS or Ubuntu 24.04",
        )
    if needs.python not in machine.system.pythons:
        found = ", ".join(sorted(machine.system.pythons)) or "none"
        yield Finding(
            "python",
            "stop",
            f"Python: expected {needs.python} in /usr/bin, found {found}",
            f"install python{needs.python}, or set `python` for this host to a version its engine has wheels for",
        )


def _memory(machine: Machine, needs: Requirements) -> Iterator[Finding]:
    if machine.memory.total is None:
        yield Finding("memory-unknown", "warn", "memory: /proc/meminfo does not say", "look at the host")
    elif machine.memory.total < needs.memory:
        yield Finding(
            "memory",
            "stop",
            f"memory: the recipes need {needs.memory / GIB:.1f} GiB, the machine has "
            f"{machine.memory.total / GIB:.1f} GiB",
            "give this host a smaller recipe, or fewer",
        )


def _disk(machine: Machine, needs: Requirements, present: frozenset[str]) -> Iterator[Finding]:
    disks = {disk.path: disk for disk in machine.disks}
    for path, disk in disks.items():
        if disk.read_only:
            yield Finding(
                "read-only",
                "stop",
                f"disk: the file system of {path} is read-only",
                f"look for errors in `journalctl -k`, then remount it read-write (`mount -o remount,rw`) "
                f"so that {path} can be written",
            )
    for device in {disk.device for disk in disks.values()}:
        wanted = [
            one for one in needs.disk if disks[one.path].device == device and one.unless not in present and one.size
        ]
        size, free = sum(one.size for one in wanted), min(disk.free for disk in disks.values() if disk.device == device)
        if size > free:
            places = ", ".join(sorted({one.path for one in wanted}))
            yield Finding(
                "disk",
                "stop",
                f"disk: {' and '.join(one.what for one in wanted)} need {size / GIB:.1f} GiB below {places}, "
                f"{free / GIB:.1f} GiB are free",
                f"free room below {places}",
            )


def _clock(machine: Machine, needs: Requirements) -> Iterator[Finding]:
    if abs(machine.system.clock_skew) > needs.clock_skew:
        yield Finding(
            "clock",
            "stop",
            f"clock: {machine.system.clock_skew:+.0f} s off the control machine's (at most {needs.clock_skew:.0f} s)",
            "set up time synchronisation on both (`timedatectl set-ntp true`), then run again",
        )
