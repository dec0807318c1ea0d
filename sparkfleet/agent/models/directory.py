"""A model in a directory on the host whose recipe has no manifest: what belongs to it, and whether it is whole.

``hf download --local-dir`` leaves the commit and the hash of every file in ``.cache/huggingface/download``
(huggingface_hub, ``_local_folder.py``): where that is, the commit must be the wanted one, and large files are checked.
"""

import os
import re
from pathlib import Path

from ..errors import HostError
from ..shapes import Hub, WeightFile
from .model_files import INDEX, needed, safetensors_size

_RECORDS = ".cache/huggingface/download"


def manifest(source: Path, hub: Hub | None) -> tuple[tuple[WeightFile, ...], str]:
    """The model's files, with a hash where the directory knows one; the commit they are of, if it knows.

    Raises HostError when a file is missing, cut off, still coming, or of another revision than ``hub`` wants.
    """
    if half := sorted(str(path.relative_to(source)) for path in source.rglob("*.incomplete")):
        raise HostError(f"{source}: {half[0]} is still coming, or was cut off. End that download, then run again.")
    there = {str(path.relative_to(source)) for path in source.rglob("*") if path.is_file()}
    index = (source / INDEX).read_text(encoding="utf-8", errors="replace") if INDEX in there else None
    try:
        names = needed((name for name in there if not name.startswith(".")), index)
    except HostError as error:
        raise HostError(f"{source}: {error}") from None
    records = {name: _record(source, name) for name in names}
    commits = {commit for commit, _ in records.values() if commit}
    wanted = hub.revision if hub else "unpinned"
    if wanted != "unpinned" and (other := sorted(commits - {wanted})):
        raise HostError(
            f"{source}: it is revision {other[0]}, the recipe wants {wanted}. Fetch that revision, or pin this one."
        )
    if len(commits) > 1:
        raise HostError(f"{source}: its files are of {len(commits)} revisions. Fetch one revision as a whole.")
    files = tuple(_file(source, name, records[name][1]) for name in names)
    return files, next(iter(commits), "")


def _file(source: Path, name: str, etag: str) -> WeightFile:
    path = source / name
    size = os.stat(path).st_size
    if name.endswith(".safetensors") and (wanted := safetensors_size(path)) != size:
        raise HostError(f"{path}: cut off: it has {size} bytes, its header speaks of {wanted}. Fetch it again.")
    return WeightFile(name, size, etag if re.fullmatch(r"[0-9a-f]{64}", etag) else "")


def _record(source: Path, name: str) -> tuple[str, str]:
    try:
        commit, etag, *_ = (source / _RECORDS / f"{name}.metadata").read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return "", ""
    return (commit, etag) if re.fullmatch(r"[0-9a-f]{40}", commit) else ("", "")
