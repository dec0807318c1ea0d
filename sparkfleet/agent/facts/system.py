"""The machine, its maker and its operating system. Serial numbers are passed over as they are read."""

import hashlib
import os
import re
import time
from pathlib import Path

from .shapes import Release, System
from .source import Program, assignments, names, spark_text, text

_CACHES = ("huggingface", "vllm", "triton", "flashinfer", "torch")
_REBOOT = "/run/reboot-required"


class Questions:
    """What is asked of systemd."""

    def __init__(self) -> None:
        running = os.path.isdir("/run/systemd/system")
        self._systemd = Program(("systemctl", "show", "--property=Version", "--value")) if running else None

    def system(self, now: float) -> System:
        """``now`` is the control machine's clock."""
        skew = round(time.time() - now, 1)
        packages = text(f"{_REBOOT}.pkgs") or ""
        return System(
            hostname=os.uname().nodename,
            architecture=os.uname().machine,
            boot_id=text("/proc/sys/kernel/random/boot_id"),
            vendor=_dmi("sys_vendor"),
            product=_dmi("product_name"),
            board=_dmi("board_vendor"),
            bios=_dmi("bios_version"),
            machine_id=digest(text("/etc/machine-id")),
            host_key=digest(text("/etc/ssh/ssh_host_ed25519_key.pub")),
            systemd=parse_systemd(self._systemd.said().text or "") if self._systemd else None,
            remove_ipc=_remove_ipc(),
            pythons=pythons(),
            own_address=parse_hosts(text("/etc/hosts") or "", os.uname().nodename),
            root_caches=root_caches("/home"),
            reboot_required=os.path.exists(_REBOOT),
            reboot_packages=tuple(dict.fromkeys(re.findall(r"^[a-z0-9][a-z0-9+.-]+$", packages, re.MULTILINE))),
            clock_skew=skew,
        )


def release() -> Release:
    """Which DGX OS this is."""
    dgx = parse_dgx(text("/etc/dgx-release") or "")
    os_release = dict(assignments(text("/etc/os-release") or ""))
    fastos = dict(assignments(text("/etc/fastos-release") or ""))
    return Release(
        name=dgx.get("DGX_NAME"),
        ota=dgx.get("DGX_OTA_VERSION") or dgx.get("DGX_SWBUILD_VERSION"),
        image=dgx.get("DGX_SWBUILD_VERSION"),
        platform=dgx.get("DGX_PLATFORM"),
        fastos=fastos.get("VERSION"),
        os=os_release.get("PRETTY_NAME"),
        os_id=os_release.get("ID"),
        os_version=os_release.get("VERSION_ID"),
    )


def parse_dgx(content: str) -> dict[str, str]:
    """/etc/dgx-release as a mapping; OTA lines repeat and the last one counts. The serial number is not kept."""
    return {key: value for key, value in assignments(content) if "SERIAL" not in key}


def parse_systemd(content: str) -> int | None:
    """The major version in ``systemctl show --property=Version``: "255.4-1ubuntu8.10"."""
    found = re.match(r"[^0-9]{0,20}([0-9]{2,4})", content)
    return int(found[1]) if found else None


def parse_remove_ipc(contents: list[str]) -> bool:
    """logind's RemoveIPC= after all its files, in their order. systemd's default is yes (logind.conf(5))."""
    value = True
    for content in contents:
        for key, said in assignments(content):
            if key == "RemoveIPC" and said.lower() in ("yes", "true", "on", "1", "no", "false", "off", "0", ""):
                value = said.lower() in ("yes", "true", "on", "1", "")
    return value


def parse_hosts(content: str, name: str) -> str | None:
    """The first IPv4 address that /etc/hosts gives for ``name``."""
    for line in content.splitlines():
        address, *names_of_it = line.partition("#")[0].split() or [""]
        if name in names_of_it and re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,3}){3}", address):
            return address
    return None


def root_caches(homes: str) -> tuple[str, ...]:
    """Caches in people's homes that belong to root: containers leave them, and their owner can then not write."""
    found = []
    for home in names(homes):
        for cache in _CACHES:
            path = f"{homes}/{home}/.cache/{cache}"
            try:
                if os.lstat(path).st_uid == 0 != os.lstat(f"{homes}/{home}").st_uid:
                    found.append(path)
            except OSError:
                continue
    return tuple(found)


def digest(value: str | None) -> str | None:
    """What tells two machines apart and gives nothing else away (machine-id(5) asks for that)."""
    return hashlib.sha256(f"sparkfleet {value}".encode()).hexdigest()[:16] if value else None


def pythons() -> dict[str, str]:
    """Minor versions of CPython in the system's own directories, with the path of each."""
    found: dict[str, str] = {}
    for directory in ("/usr/bin", "/usr/local/bin"):
        for path in sorted(Path(directory).glob("python3.*")):
            version = path.name.removeprefix("python")
            if re.fullmatch(r"3\.[0-9]+", version) and os.access(path, os.X_OK):
                found.setdefault(version, str(path))
    return found


def _remove_ipc() -> bool:
    places: dict[str, str] = {}
    for directory in ("/usr/lib/systemd", "/run/systemd", "/etc/systemd"):  # a later one hides an equal name
        for name in names(f"{directory}/logind.conf.d"):
            if name.endswith(".conf"):
                places[name] = f"{directory}/logind.conf.d/{name}"
    files = ["/etc/systemd/logind.conf", *(places[name] for name in sorted(places))]
    return parse_remove_ipc([text(path) or "" for path in files])


def _dmi(name: str) -> str | None:
    return spark_text(f"/sys/class/dmi/id/{name}") or None
