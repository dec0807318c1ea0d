"""The root file system every lab host starts from: built once per recipe, cached, never written to.

It is made under a temporary name and renamed when complete, in namespaces that die with their maker:
an interrupted build leaves one directory, which the next build removes.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from lab import mirror
from lab.cache import cache_dir, make_dir
from lab.shell import call, environment
from lab.state import locked
from sparkfleet.errors import UserError

Report = Callable[[str], None]

#: what of a Spark's system the deploy touches, and nothing more
PACKAGES = (
    "ca-certificates",
    "dbus",
    "iproute2",
    "libnuma1",  # the CPU engine loads it
    "libpam-systemd",
    "openssh-server",
    "procps",
    "python3",
    "sudo",
    "systemd",
    "systemd-sysv",
)

#: path -> content
FILES = {
    "etc/apt/sources.list": "",  # a lab host is offline, and must not name this machine's mirror
    "etc/default/locale": "LANG=C.UTF-8\n",
    "etc/environment": 'PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"\n',
    "etc/fstab": "",
    "etc/resolv.conf": "",
    "etc/ssh/sshd_config.d/lab.conf": (
        "LogLevel VERBOSE\n"  # tests count sessions in the journal
        "PasswordAuthentication no\n"
        "HostKey /etc/ssh/ssh_host_ed25519_key\n"
    ),
    "etc/sudoers.d/spark": "spark ALL=(ALL) NOPASSWD: ALL\n",
    "etc/systemd/journald.conf.d/lab.conf": "[Journal]\nStorage=persistent\nSystemMaxUse=64M\n",
}

#: useradd(8) for a Spark's first user, whom its setup lets administer it
USER = ("--uid=1000", "--user-group", "--groups=adm,sudo", "--create-home", "--shell=/bin/bash", "spark")

#: units that would look for a network, a console or updates
MASKED = (
    "apt-daily-upgrade.timer",
    "apt-daily.timer",
    "console-getty.service",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "fstrim.timer",
    "motd-news.timer",
)

STAGES = {  # what debootstrap says -> what a person is told
    "Retrieving InRelease": "reading the package index",
    "Validating": "downloading packages",
    "Extracting": "extracting packages",
    "Unpacking the base system": "unpacking the base system",
    "Configuring the base system": "configuring packages",
}


def ensure(report: Report) -> Path:
    """The image for this machine, built now (about a minute) if it is not in the cache."""
    suite = mirror.suite()
    name = f"{suite}-{digest(suite)}"
    images = make_dir(cache_dir() / "image")
    with locked(images, lambda: report("waiting for another command that builds the host image")):
        image = images / name
        if image.is_dir():
            return image
        for rubble in images.glob(".building-*"):
            remove_tree(rubble)
        building = images / f".building-{name}"
        started = time.monotonic()
        try:
            _bootstrap(mirror.mirrors(), building, report)
            _configure(building)
        except BaseException:
            remove_tree(building)
            raise
        building.rename(image)
        report(f"host image ready in {time.monotonic() - started:.0f} s, kept in {image}")
        return image


def digest(suite: str) -> str:
    """Names what an image is made of, so that a changed recipe never meets an old image."""
    recipe = json.dumps([suite, os.uname().machine, PACKAGES, FILES, USER, MASKED], sort_keys=True)
    return hashlib.sha256(recipe.encode()).hexdigest()[:12]


def remove_tree(path: Path) -> None:
    """Remove a directory, staying on its file system: a mount left inside it is not followed into."""
    if path.exists():
        call(["rm", "-rf", "--one-file-system", path])


def _bootstrap(candidates: list[mirror.Mirror], target: Path, report: Report) -> None:
    said = ""
    for candidate in candidates:
        remove_tree(target)
        said = _debootstrap(candidate, target, report)
        if not said:
            return
    raise UserError(
        f"The lab's host image could not be built from this machine's apt sources: debootstrap said "
        f"{said!r}. If `apt-get update` works here, retry; otherwise mend the sources first."
    )


def _debootstrap(source: mirror.Mirror, target: Path, report: Report) -> str:
    """Last error of debootstrap, empty if it succeeded.

    Own mount and pid namespaces: what it mounts in the target is seen by nobody and ends with it,
    and killing one process ends all it started. setpriv extends that to our own sudden death.
    """
    argv = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    argv += ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}"]
    argv += [f"--keyring={source.keyring}", source.suite, str(target), source.uri]
    if not Path("/usr/share/debootstrap/scripts", source.suite).exists():  # debootstrap older than the suite
        argv.append("/usr/share/debootstrap/scripts/" + {"noble": "gutsy", "bookworm": "sid"}[source.suite])
    report(f"building the host image ({source.suite}), once, about a minute")
    last = ""
    with subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment(**_proxy()),
        start_new_session=True,  # Ctrl-C reaches us alone, and we end the rest
    ) as process:
        assert process.stdout is not None
        try:
            seen: set[str] = set()
            for line in process.stdout:
                if line.startswith(("E:", "W: Failure", "debootstrap:")):
                    last = line.strip()
                for words, stage in STAGES.items():
                    if words in line and stage not in seen:
                        seen.add(stage)
                        report(f"host image: {stage}")
        except BaseException:
            process.kill()
            raise
    return "" if process.returncode == 0 else last or f"exit status {process.returncode}"


def _proxy() -> dict[str, str]:
    """apt's proxy, if it has one of its own: debootstrap downloads with wget, which reads the environment."""
    said = call(["apt-config", "dump", "Acquire::http::Proxy"])
    proxy = re.search(r'"([^"]+)"', said)
    return {"http_proxy": proxy[1]} if proxy and proxy[1] != "DIRECT" else {}


def _configure(root: Path) -> None:
    for path, content in FILES.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)  # resolv.conf may be a link out of the image
        file.write_text(content)
    (root / "etc/sudoers.d/spark").chmod(0o440)
    for unit in MASKED:
        link = root / "etc/systemd/system" / unit
        link.unlink(missing_ok=True)
        link.symlink_to("/dev/null")
    for unique in (root / "etc/ssh").glob("ssh_host_*"):  # a host has its own
        unique.unlink()
    (root / "etc/machine-id").write_text("")
    call(
        [
            "chroot",
            root,
            "useradd",
            "--uid=1000",
            "--user-group",
            "--create-home",
            "--shell=/bin/bash",
            "--groups=adm,sudo",
            "spark",
        ]
    )
    for waste in ("var/cache/apt/archives", "var/lib/apt/lists"):
        shutil.rmtree(root / waste)
        (root / waste / "partial").mkdir(parents=True)
    for updated in ("etc/.updated", "var/.updated"):  # else a first boot does what an update of /usr calls for
        (root / updated).touch()
