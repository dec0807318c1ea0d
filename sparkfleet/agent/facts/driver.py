"""The driver's part in the kernel, its packages, and what it has written to the kernel's log."""

import os
import re

from .shapes import Agreement, Driver, Gpu
from .source import LIMIT, Program, kernel_path, lab, names, spark_text, text

_PACKAGES = ("dpkg-query", "-W", "-f", "${db:Status-Status} ${Package} ${Version}\\n", "nvidia-driver-*")
_OPTIONS = "/etc/modprobe.d"


class Questions:
    """What is asked of dpkg."""

    def __init__(self) -> None:
        self._packages = Program(_PACKAGES)

    def driver(self, gpu: Gpu) -> Driver:
        """The driver, next to what its libraries say of themselves."""
        module = loaded()
        branch, package = parse_packages(self._packages.said().stdout.decode("utf-8", "replace"))
        log = _kernel_log()
        return Driver(
            module=module,
            agreement=agreement(module, gpu),
            branch=branch,
            package=package,
            xids=None if log is None else parse_xids(log),
            refusals=None if log is None else log.count("NV_ERR_NO_MEMORY"),
            options=tuple(name for name in names(_OPTIONS) if _speaks_of_the_driver(text(f"{_OPTIONS}/{name}") or "")),
        )


def loaded() -> str | None:
    """The version of the loaded kernel module, None where none is."""
    return parse_module(spark_text("/proc/driver/nvidia/version") or "")


def parse_module(content: str) -> str | None:
    """The version of the loaded kernel module, from /proc/driver/nvidia/version."""
    found = re.search(r"NVRM version:.*?\s([0-9]{3,4}(?:\.[0-9]+)+)\s", content)
    return found[1] if found else None


def agreement(module: str | None, gpu: Gpu) -> Agreement:
    """Whether kernel module and libraries are of one version."""
    if gpu.state == "mismatch":
        return "mismatch"
    if module is None:
        return "not-loaded" if gpu.state == "no-driver" else "unknown"
    if gpu.driver is None:
        return "unknown"
    return "same" if module == gpu.driver else "mismatch"


def parse_packages(content: str) -> tuple[str | None, str | None]:
    """Branch ("580-open") and upstream version of the installed driver package, from ``dpkg-query``.

    Where several are installed the newest counts; other nvidia packages have versions of their own.
    """
    found: dict[str, str] = {}
    for line in content.splitlines():
        match = re.fullmatch(
            r"installed nvidia-driver-([0-9]{3,4}(?:-server)?(?:-open)?) (?:[0-9]+:)?([0-9]{3,4}(?:\.[0-9]+)+)\S*", line
        )
        if match:
            found[match[1]] = match[2]
    if not found:
        return None, None
    branch = max(found, key=lambda one: (int(one.split("-")[0]), one))
    return branch, found[branch]


def parse_xids(log: str) -> tuple[int, ...]:
    """The driver's error numbers in the kernel's log, each once.

    https://docs.nvidia.com/deploy/xid-errors
    """
    return tuple(sorted({int(number) for number in re.findall(r"NVRM: Xid \([^)\n]*\): ([0-9]{1,4})\b", log)}))


def _speaks_of_the_driver(content: str) -> bool:
    return re.search(r"^\s*(options|install|blacklist)\s+nvidia", content, re.MULTILINE) is not None


def _kernel_log() -> str | None:
    """The kernel's own log since it booted, None where it may not be read."""
    if lab():
        return text(str(kernel_path("/dev/kmsg"))) or ""
    lines = []
    try:
        log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        size = 0
        while size < LIMIT:
            try:
                piece = os.read(log, 8192)
            except BlockingIOError:
                break
            except BrokenPipeError:
                continue  # what was to be read next has just been overwritten
            except OSError:
                break
            size += len(piece)
            if b"NVRM" in piece or b"NV_ERR" in piece:
                lines.append(piece.decode("utf-8", "replace"))
    finally:
        os.close(log)
    return "\n".join(lines)
