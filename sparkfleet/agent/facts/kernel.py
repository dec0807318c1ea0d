"""The running kernel, and the one that boots next: an update may bring a kernel without the driver's module."""

import os
import re
from collections.abc import Iterable
from pathlib import Path

from .shapes import Kernel
from .source import assignments, kernel_text, names, spark_text, text, version_key

#: Where a module of the driver lies below /lib/modules/VERSION: Ubuntu's own packages, DKMS, by hand.
_PLACES = (
    "kernel/nvidia-*/nvidia.ko*",
    "updates/dkms/nvidia.ko*",
    "updates/nvidia.ko*",
    "extra/nvidia.ko*",
    "kernel/drivers/video/nvidia.ko*",
)


_MODULES = Path("/lib/modules")


def look() -> Kernel:
    """Look at what runs and at the boot loader's files."""
    now = running()
    boots = boots_next(
        text("/boot/grub/grub.cfg") or "",
        text("/etc/default/grub") or "",
        text("/boot/grub/grubenv") or "",
        (name.removeprefix("vmlinuz-") for name in names("/boot") if name.startswith("vmlinuz-")),
    )
    return Kernel(
        running=now,
        running_module=has_module(now),
        next=boots,
        next_module=has_module(boots) if boots else None,
        kho=parse_kho(spark_text("/proc/cmdline") or ""),
    )


def running() -> str:
    """The version of the kernel that runs."""
    return kernel_text("/proc/sys/kernel/osrelease") or os.uname().release


def boots_next(menu: str, defaults: str, environment: str, installed: Iterable[str]) -> str | None:
    """The version of the kernel that GRUB starts next, None if that cannot be told.

    Without a menu it is the newest installed, the one that update-grub puts first.
    """
    chosen = dict(assignments(environment)).get("next_entry") or dict(assignments(defaults)).get("GRUB_DEFAULT", "0")
    if chosen == "saved":
        chosen = dict(assignments(environment)).get("saved_entry", "0")
    if chosen not in ("", "0"):
        titled = re.findall(r"(?:with Linux |gnulinux-)([0-9][\w.+-]*?)(?=-advanced\b|[\s>]|$)", chosen)
        return titled[-1] if titled else None
    first = re.search(r"^\s*linux(?:efi)?\s+\S*?/vmlinuz-(\S+)", menu, re.MULTILINE)
    if first:
        return first[1]
    return max((one for one in installed if one[:1].isdigit()), key=version_key, default=None)


def parse_kho(content: str) -> str | None:
    """What the kernel's command line says of Kexec HandOver; the last word counts."""
    found = re.findall(r"(?:^|\s)kho=(on|off|[01yn])(?=\s|$)", content)
    return {"1": "on", "y": "on", "0": "off", "n": "off"}.get(found[-1], found[-1]) if found else None


def has_module(version: str) -> bool | None:
    """Whether ``version`` has the driver's module, None for a kernel whose modules are not on this machine at all."""
    return bool(modules(version)) if "/" not in version and (_MODULES / version).is_dir() else None


def modules(version: str) -> list[Path]:
    """The driver's module for a kernel, wherever it is."""
    return [found for place in _PLACES for found in (_MODULES / version).glob(place)]
