"""What kind of machine this is: GPU, driver, memory, disks, Pythons, clock.

A tool that is missing, hangs, fails or prints noise is a fact about the machine, never a crash. Formats are those of
real Sparks: https://docs.nvidia.com/dgx/dgx-spark (dgx-release, nvidia-smi) and the recordings under tests/.
"""

import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from .shapes import Disk, Gpu, GpuState, Machine

#: Marks a lab host. Its kernel is not a Spark's: what that would give in /proc and /sys is read from ``root`` below.
LAB = Path("/etc/sparkfleet-lab")

#: An nvidia-smi of a healthy Spark answers in well under a second; one that takes longer is hung.
GPU_TIMEOUT = 10.0

_GPU_QUERY = ("nvidia-smi", "--query-gpu=name,driver_version,compute_cap", "--format=csv,noheader")


def examine(paths: Iterable[str], now: float) -> Machine:
    """Look at this machine; ``paths`` are where room is needed, ``now`` is the control machine's clock."""
    lab = _text(LAB / "scenario")
    dgx = dgx_release(_text(Path("/etc/dgx-release")) or "")
    memory = meminfo(_text(Path("/proc/meminfo")) or "")
    return Machine(
        hostname=platform.node(),
        architecture=platform.machine(),
        kernel=platform.release(),
        boot_id=_text(Path("/proc/sys/kernel/random/boot_id")),
        lab=lab,
        gpu=gpu(),
        driver_module=module_version(_kernel_file("/proc/driver/nvidia/version", lab) or ""),
        dgx=dgx.get("DGX_NAME"),
        ota=dgx.get("DGX_OTA_VERSION") or dgx.get("DGX_SWBUILD_VERSION"),
        platform=dgx.get("DGX_PLATFORM"),
        os=os_name(_text(Path("/etc/os-release")) or ""),
        systemd=systemd_version(),
        pythons=pythons(),
        memory_total=memory.get("MemTotal"),
        memory_available=memory.get("MemAvailable"),
        disks=tuple(disk(path) for path in dict.fromkeys(paths)),
        clock_skew=round(time.time() - now, 1),
    )


def gpu() -> Gpu:
    """Ask nvidia-smi what GPU and driver there are."""
    try:
        done = subprocess.run(_GPU_QUERY, stdin=subprocess.DEVNULL, capture_output=True, timeout=GPU_TIMEOUT)
    except FileNotFoundError:
        return Gpu("missing", detail="nvidia-smi: command not found")
    except subprocess.TimeoutExpired:
        return Gpu("timeout", detail=f"nvidia-smi gave no answer within {GPU_TIMEOUT:.0f} s")
    except OSError as error:
        return Gpu("missing", detail=f"nvidia-smi: {error.strerror or error}")
    return parse_gpu(done.stdout, done.stderr, done.returncode)


def parse_gpu(stdout: bytes, stderr: bytes, code: int) -> Gpu:
    """Read the answer of nvidia-smi, whatever it is."""
    text = stdout.decode("utf-8", "replace")
    said = _one_line(text + " " + stderr.decode("utf-8", "replace"))
    for pattern, state in _GPU_FAILURES:
        if pattern in said:
            return Gpu(state, detail=said)
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines() if line.strip()]
    row = rows[0] if rows else []
    if code != 0 or len(row) != 3 or not re.fullmatch(r"\d+(\.\d+)+", row[1]):
        return Gpu("unreadable", detail=said or f"no output, exit status {code}")
    name, driver, capability = (None if cell in _NOTHING else cell for cell in row)
    return Gpu("ok", name, capability, driver)


_NOTHING = ("", "[N/A]", "N/A", "[Not Supported]", "[Unknown Error]")

_GPU_FAILURES: tuple[tuple[str, GpuState], ...] = (
    ("Driver/library version mismatch", "mismatch"),
    ("No devices were found", "no-devices"),
    ("couldn't communicate with the NVIDIA driver", "no-driver"),
)


def module_version(text: str) -> str | None:
    """The version of the loaded kernel module, from /proc/driver/nvidia/version."""
    found = re.search(r"NVRM version:.*?\s(\d{3,}(?:\.\d+)+)\s", text)
    return found[1] if found else None


def dgx_release(text: str) -> dict[str, str]:
    """/etc/dgx-release as a mapping; OTA lines repeat and the last one counts. The serial number is not kept."""
    return {key: value for key, value in _assignments(text) if "SERIAL" not in key}


def os_name(text: str) -> str | None:
    """PRETTY_NAME of /etc/os-release."""
    return dict(_assignments(text)).get("PRETTY_NAME")


def _assignments(text: str) -> list[tuple[str, str]]:
    found = re.findall(r"^([A-Z_]+)=(.*)$", text, re.MULTILINE)
    return [(key, value.strip().strip("\"'")) for key, value in found]


def meminfo(text: str) -> dict[str, int]:
    """/proc/meminfo in bytes."""
    found = re.findall(r"^(\w+):\s+(\d{1,15}) kB\s*$", text, re.MULTILINE)
    return {key: int(value) * 1024 for key, value in found}


def systemd_version() -> int | None:
    """The running systemd's version, or None where systemd is not what runs this machine."""
    if not Path("/run/systemd/system").is_dir():
        return None
    try:
        done = subprocess.run(
            ("systemctl", "show", "--property=Version", "--value"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.match(r"\D{0,20}(\d{2,4})", done.stdout.decode("utf-8", "replace"))
    return int(found[1]) if found else None


def pythons() -> dict[str, str]:
    """Minor versions of CPython in the system's own directories, with the path of each."""
    found: dict[str, str] = {}
    for directory in ("/usr/bin", "/usr/local/bin"):
        for path in sorted(Path(directory).glob("python3.*")):
            version = path.name.removeprefix("python")
            if re.fullmatch(r"3\.\d+", version) and os.access(path, os.X_OK):
                found.setdefault(version, str(path))
    return found


def disk(path: str) -> Disk:
    """Room where ``path`` is or would be."""
    place = Path(path)
    while not place.exists() and place != place.parent:
        place = place.parent
    usage = shutil.disk_usage(place)
    return Disk(path, place.stat().st_dev, usage.free, usage.total, bool(os.statvfs(place).f_flag & os.ST_RDONLY))


def _kernel_file(path: str, lab: str | None) -> str | None:
    return _text(LAB / "root" / path.lstrip("/") if lab else Path(path))


def _text(path: Path) -> str | None:
    try:
        return path.read_bytes()[:65536].decode("utf-8", "replace").strip()
    except OSError:
        return None


def _one_line(text: str) -> str:
    return " ".join(re.sub(r"[^\x20-\x7e]+", " ", text).split())[:300]
