"""A small site-packages directory with records as installers write them, and a patch set for it."""

import base64
import csv
import hashlib
import io
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from sparkfleet.agent.patching import Edit, Patch, PatchSet, Precedence, Probe, Sign, Target

KERNEL = "engine/kernel.py"
MODEL = "engine/model.py"
SHARED = "shared/mma.py"

FILES = {
    KERNEL: "def arch(cap):\n    if cap == 120:\n        return 'fast'\n    return 'slow'\n",
    MODEL: "LAYERS = 48\nHEADS = 8\n",
    "engine/other.py": "X = 1\n",
}


def install(site: Path, name: str, version: str, files: Mapping[str, str | bytes]) -> None:
    """Lay a distribution down over what is there, as an installer does: new files, its own RECORD."""
    lines = io.StringIO()
    record = csv.writer(lines, lineterminator="\n")
    for path, content in files.items():
        data = content.encode() if isinstance(content, str) else content
        place = site / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        place.write_bytes(data)
        place.chmod(0o644)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record.writerow([path, f"sha256={digest}", len(data)])
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nVersion: not this\n")
    record.writerow([f"{info.name}/METADATA", "", ""])
    record.writerow([f"{info.name}/RECORD", "", ""])
    (info / "RECORD").write_text(lines.getvalue())


def engine(site: Path) -> Path:
    """``site`` with one distribution, ``engine 1.0``."""
    install(site, "engine", "1.0", FILES)
    return site


def target(
    path: str, *edits: tuple[str, str], distribution: str = "engine", when: str = "", signs: tuple[Sign, ...] = ()
) -> Target:
    return Target(distribution, path, when, tuple(Edit(old, new) for old, new in edits), signs)


def patch(
    identity: str, *targets: Target, wanted: bool = True, kind: str = "required", probe: Probe | None = None
) -> Patch:
    return Patch(
        identity,
        f"title {identity}",
        "https://example.org/",
        kind,
        f"reason {identity}",
        wanted,  # type: ignore[arg-type]
        targets,
        None,
        None,
        probe,
    )


def precedence(winner: str, loser: str) -> Patch:
    return Patch(
        "P8",
        "title P8",
        "https://example.org/",
        "required",
        "reason P8",
        True,
        (),
        Precedence(winner, loser),
        None,
        None,
    )


def patch_set(*patches: Patch, **versions: str) -> PatchSet:
    return PatchSet(
        1, "test", {name.replace("_", "-"): v for name, v in (versions or {"engine": "1.0"}).items()}, patches
    )


ARCH = patch("P1", target(KERNEL, ("    if cap == 120:\n", "    if cap in (120, 121):\n")))
SLOW = patch("P2", target(KERNEL, ("    return 'slow'\n", "    return 'slow but right'\n")))
LAYERS = patch("P3", target(MODEL, ("LAYERS = 48\n", "LAYERS = 48\nGDN = 36\n"), ("HEADS = 8\n", "HEADS = 16\n")))
ALL = patch_set(ARCH, SLOW, LAYERS)

Tree = dict[str, tuple[str, int, bytes]]


def tree(site: Path) -> Tree:
    """Everything below ``site``: kind, mode and bytes of each entry."""
    found: Tree = {}
    for path in sorted(site.rglob("*")):
        status = os.lstat(path)
        kind = "link" if stat.S_ISLNK(status.st_mode) else "dir" if stat.S_ISDIR(status.st_mode) else "file"
        data = path.read_bytes() if kind == "file" else os.readlink(path).encode() if kind == "link" else b""
        found[str(path.relative_to(site))] = (kind, stat.S_IMODE(status.st_mode), data)
    return found


def marks(site: Path) -> dict[str, tuple[int, int, int]]:
    """Inode and times of every file: any write shows."""
    return {
        str(path.relative_to(site)): (status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
        for path in sorted(site.rglob("*"))
        if (status := os.lstat(path))
    }
