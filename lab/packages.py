"""A local apt repository of stand-in driver packages, for a lab host: what an update of the driver does to a Spark.

The package of the driver changes what the host pretends as the real one would: libraries are new at once, so that
nvidia-smi reports a mismatch, and the kernel module is new after the next boot.
"""

import hashlib
import json
import shutil
from pathlib import Path

from lab import scenarios
from lab.shell import call

KERNEL = "6.17.0-1014-nvidia"
DRIVER = "nvidia-driver-580-open"
MODULES = f"linux-modules-nvidia-580-open-{KERNEL}"
META = "linux-modules-nvidia-580-open-nvidia-hwe-24.04"

#: Where the repository is on a host. It is named in no file of this repository's catalog.
PLACE = "srv/apt"

_UNIT = """\
[Unit]
Description=Stand-in: the kernel loads the module that is installed
DefaultDependencies=no
Before=sysinit.target
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'for f in scenario.json root/proc/driver/nvidia/version; do \
cp /usr/lib/sparkfleet-lab/$$(basename $$f) /etc/sparkfleet-lab/$$f; done'
[Install]
WantedBy=sysinit.target
"""

_MISMATCH = {"only": True, "exit": 18, "stdout": "Failed to initialize NVML: Driver/library version mismatch\n"}


def offer(root: Path, version: str, label: str, scenario: str, with_module: bool = True) -> None:
    """Give the host whose files are at ``root`` an apt repository with driver ``version``.

    ``label`` is the repository's own (apt's ``l=``); ``scenario`` is what the host plays with that driver once it has
    booted; without ``with_module`` there is no module for its kernel.
    """
    place = root / PLACE
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    debian = f"{version}-0ubuntu0.24.04.1"
    packages = [_driver(place, debian, scenario)]
    if with_module:
        packages += [_modules(place, version), _package(place, META, "6.17.0-1014.14", depends=MODULES)]
    else:
        packages += [_package(place, META, "6.17.0-1014.14")]
    (place / "Packages").write_text("\n".join(_stanza(place, package) for package in packages))
    listing = (place / "Packages").read_bytes()
    release = (
        f"Origin: NVIDIA\nLabel: {label}\nSuite: noble\nCodename: noble\nDate: Wed, 15 Jul 2026 12:00:00 UTC\nSHA256:\n"
    )
    (place / "Release").write_text(f"{release} {hashlib.sha256(listing).hexdigest()} {len(listing)} Packages\n")
    (root / "etc/apt/sources.list").write_text(f"deb [trusted=yes] file:/{PLACE} ./\n")


def _driver(place: Path, version: str, scenario: str) -> Path:
    played = scenarios.load(scenario)
    after = json.dumps({"smi": played["smi"], "gpu": played["gpu"]})
    module = played["files"]["/etc/sparkfleet-lab/root/proc/driver/nvidia/version"]
    before = json.dumps({"smi": _MISMATCH, "gpu": played["gpu"]})
    files = {
        "usr/lib/sparkfleet-lab/scenario.json": after,
        "usr/lib/sparkfleet-lab/version": module,
        "usr/lib/sparkfleet-lab/until-boot.json": before,
        "usr/lib/systemd/system/sparkfleet-lab-module.service": _UNIT,
    }
    script = (
        "#!/bin/sh\nset -e\ncp /usr/lib/sparkfleet-lab/until-boot.json /etc/sparkfleet-lab/scenario.json\n"
        "systemctl enable --quiet sparkfleet-lab-module.service\n"
    )
    return _package(place, DRIVER, version, files, postinst=script)


def _modules(place: Path, version: str) -> Path:
    path = f"usr/lib/modules/{KERNEL}/kernel/nvidia-580-open/nvidia.ko"
    return _package(place, MODULES, "6.17.0-1014.14", {path: f"stand-in\0version={version}\0\n"})


def _package(
    place: Path, name: str, version: str, files: dict[str, str] | None = None, depends: str = "", postinst: str = ""
) -> Path:
    build = place / f"{name}.build"
    control = f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: the lab\n"
    control += f"{f'Depends: {depends}{chr(10)}' if depends else ''}Description: stand-in\n"
    for path, content in {**(files or {}), "DEBIAN/control": control, "DEBIAN/postinst": postinst}.items():
        if content:
            (build / path).parent.mkdir(parents=True, exist_ok=True)
            (build / path).write_text(content)
    if postinst:
        (build / "DEBIAN/postinst").chmod(0o755)
    package = place / f"{name}_{version}_all.deb"
    call(["dpkg-deb", "--root-owner-group", "--build", build, package])
    shutil.rmtree(build)
    return package


def _stanza(place: Path, package: Path) -> str:
    content = package.read_bytes()
    about = call(["dpkg-deb", "--field", package])
    digest = hashlib.sha256(content).hexdigest()
    return f"{about.strip()}\nFilename: ./{package.name}\nSize: {len(content)}\nSHA256: {digest}\n"
