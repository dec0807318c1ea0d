"""What the lab needs of this machine, said before anything is made."""

import os
import shutil
import subprocess
from pathlib import Path

from lab.cache import cache_dir, make_dir
from lab.shell import environment
from sparkfleet.errors import UserError

PACKAGES = {  # command -> Debian and Ubuntu package
    "debootstrap": "debootstrap",
    "systemd-nspawn": "systemd-container",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "mkfs.ext4": "e2fsprogs",
}

# In namespaces that vanish with the process: a probe leaves nothing. Run in the cache: overlays are refused there
# if it is no real disk.
PROBE = """
ip link add probe type bridge || { echo bridge; exit 1; }
ip link add probe0 type veth peer name probe1 || { echo veth; exit 1; }
mkdir lower upper work merged
mount -t overlay probe -o lowerdir=lower,upperdir=upper,workdir=work merged || { echo overlay; exit 1; }
"""
LACKS = {
    "bridge": "the kernel has no bridge interfaces (CONFIG_BRIDGE), or this machine may not make them",
    "veth": "the kernel has no veth interfaces (CONFIG_VETH), or this machine may not make them",
    "overlay": "no overlay can be mounted in {cache}: the kernel lacks overlayfs, or that directory is itself on an "
    "overlay (as in a container). Set SPARKFLEET_CACHE to a directory on ext4, xfs or btrfs",
}


def need_root() -> None:
    if os.geteuid() != 0:
        raise UserError("The lab makes namespaces, mounts and interfaces: run this with sudo.")


def check() -> None:
    """Refuse, naming all that is missing and how to get it."""
    need_root()
    path = environment()["PATH"]
    missing = sorted({package for command, package in PACKAGES.items() if not shutil.which(command, path=path)})
    if missing:
        raise UserError(f"The lab needs packages this machine lacks: apt-get install {' '.join(missing)}")
    _probe()


def _probe() -> None:
    cache = make_dir(cache_dir())
    for left in cache.glob(".probe-*"):
        if not Path("/proc", left.name.removeprefix(".probe-")).exists():  # killed before it could tidy up
            shutil.rmtree(left)
    probe = make_dir(cache / f".probe-{os.getpid()}")
    enter = ["unshare", "--net", "--mount", "--propagation", "private", "sh", "-c", PROBE]
    try:
        done = subprocess.run(enter, cwd=probe, capture_output=True, text=True, env=environment())
    finally:
        shutil.rmtree(probe, ignore_errors=True)
    if done.returncode != 0:
        lack = LACKS.get(done.stdout.strip(), "namespaces cannot be made").format(cache=cache)
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise UserError(f"The lab cannot run here: {lack}. ({last})")
