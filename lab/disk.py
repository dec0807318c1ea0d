"""A host's files: an overlay over the image, so that a host costs what it writes and begins in no time."""

import re
import uuid
from pathlib import Path

from lab import scenarios
from lab.cache import cache_dir, make_dir
from lab.image import remove_tree
from lab.shell import call
from lab.state import Host, Place
from sparkfleet.errors import UserError

#: what a lab's hosts find where a site would have its share or disk: directory of the cache -> path in the host
SHARED = {"wheelhouse": "/srv/sparkfleet/wheelhouse", "models": "/srv/sparkfleet/models"}


def make(host: Host, image: Path, host_key: Path, authorized: str) -> None:
    """Create and mount the host's file systems, and write what tells it from the others."""
    place = host.place
    make_dir(place.disk.parent)
    for directory in (place.disk, place.root, place.limited):
        directory.mkdir(parents=True, exist_ok=True)
    mount(host, image)
    _settle(host, host_key, authorized)


def mount(host: Host, image: Path) -> None:
    place = host.place
    layer = place.disk
    for path, size in sorted(host.options.limits.items()):
        where = place.disk if path == "/" else place.limited / _flat(path)
        _mount_limited(place.disk.parent / f"{place.name}{_flat(path)}.ext4", where, size)
    (layer / "upper").mkdir(exist_ok=True)
    (layer / "work").mkdir(exist_ok=True)
    # Relative to the cache: a ':' or ',' in its path would be read as syntax.
    base = cache_dir()
    lower, own = image.relative_to(base), layer.relative_to(base)
    options = f"lowerdir={lower},upperdir={own}/upper,workdir={own}/work"
    try:
        call(["mount", "-t", "overlay", "sparkfleet-lab", "-o", options, place.root], cwd=base)
    except UserError as error:
        raise UserError(
            f"The lab's disk of {host.name} could not be mounted: {error}. Overlays need a real disk under "
            f"{base}: set SPARKFLEET_CACHE to a directory on ext4, xfs or btrfs."
        ) from error


def nspawn_arguments(host: Host) -> list[str]:
    """How systemd-nspawn sees the host's file systems."""
    place, binds = host.place, []
    shared = {inside: str(make_dir(cache_dir() / name)) for name, inside in SHARED.items()}
    for inside, outside in {**shared, **host.options.binds}.items():
        binds.append(("--bind-ro", outside, inside))
    for path in host.options.limits:
        if path != "/":
            binds.append(("--bind", str(place.limited / _flat(path)), path))
    for path in host.options.read_only:
        limited = path in host.options.limits
        binds.append(("--bind-ro", str(place.limited / _flat(path) if limited else place.root / path[1:]), path))
    quoted = [(flag, *(p.replace("\\", "\\\\").replace(":", "\\:") for p in pair)) for flag, *pair in binds]
    return [f"--directory={place.root}", *(f"{flag}={outside}:{inside}" for flag, outside, inside in quoted)]


def remove(place: Place) -> None:
    """Unmount and remove every file of a host; nothing of it may be running."""
    for mounted in mounts(place.run, place.disk):
        unmount(mounted)
    remove_tree(place.disk)
    for file in place.disk.parent.glob(f"{place.name}-*.ext4"):
        file.unlink()
    remove_tree(place.run)


def unmount(path: Path) -> None:
    try:
        call(["umount", path])
    except UserError:
        call(["umount", "--lazy", path])  # a shell of somebody's stands in it


def mounts(*under: Path) -> list[Path]:
    """Mount points in or at some directories of this machine, innermost first."""
    text = Path("/proc/self/mountinfo").read_text()
    points = [Path(re.sub(r"\\(\d{3})", lambda m: chr(int(m[1], 8)), row.split()[4])) for row in text.splitlines()]
    return [p for p in reversed(points) if any(p.is_relative_to(directory) for directory in under)]


def _mount_limited(file: Path, where: Path, size: int) -> None:
    """A file system of its own, of ``size`` bytes, in a sparse file."""
    where.mkdir(exist_ok=True)
    if not file.exists():
        with file.open("wb") as stream:
            stream.truncate(size)
        call(["mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", "-E", "root_owner=0:0", file])
    call(["mount", "-o", "loop", file, where])


def _flat(path: str) -> str:
    return path.rstrip("/").replace("/", "-") or "-root"


def _settle(host: Host, host_key: Path, authorized: str) -> None:
    root = host.place.root
    (root / "etc/hostname").write_text(f"{host.name}\n")
    (root / "etc/hosts").write_text(f"127.0.0.1 localhost\n::1 localhost\n127.0.1.1 {host.name}\n")
    (root / "etc/machine-id").write_text(uuid.uuid4().hex + "\n")
    for suffix, mode in (("", 0o600), (".pub", 0o644)):
        target = root / f"etc/ssh/ssh_host_ed25519_key{suffix}"
        target.touch(mode)
        target.write_text(Path(f"{host_key}{suffix}").read_text())
    keys = root / "home/spark/.ssh"
    call(["install", "-d", "-m", "700", "-o", "1000", "-g", "1000", keys])
    (keys / "authorized_keys").write_text(authorized)
    for inside in SHARED.values():
        (root / inside[1:]).mkdir(parents=True, exist_ok=True)
    scenarios.apply(root, host.scenario, host.fabric)


def leftovers(lab: str) -> list[Path]:
    """Directories of a lab in the cache whose hosts nobody remembers, as after a reboot of this machine."""
    disks = cache_dir() / "hosts" / lab
    return [p for p in sorted(disks.iterdir()) if not Place(lab, p.name).run.exists()] if disks.is_dir() else []


def forget(lab: str) -> None:
    """Remove the lab's empty directory in the cache."""
    directory = cache_dir() / "hosts" / lab
    if directory.is_dir():
        directory.rmdir()
