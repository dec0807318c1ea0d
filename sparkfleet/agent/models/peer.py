"""Weights from another Spark: what its receipt vouches for, handed out while the run lasts, each byte checked here."""

import hashlib
import http.client
import os
import pwd
import shutil
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .. import receipt
from ..errors import HostError
from ..progress import Meter, say
from ..shapes import Weights, WheelSource
from ..supply.source import Source
from ..wire import WireError, decode, encode
from .hub_shapes import HubFile, Listing
from .incoming import Staging, in_place, incoming, mark, place
from .model_files import check_name

MANIFEST = "manifest"
"""Name under which the listing is handed out; the files are called by their hash."""

_LIMIT = 64 * 1024 * 1024
_CHUNK = 1024 * 1024


# --- hand them out -----------------------------------------------------------------------------------------------


def offered(model: str, directory: Path) -> dict[str, Path]:
    """The files of ``model`` by the SHA-256 of their bytes, and its manifest, which is written into ``directory``.

    Raises HostError when the model is not whole here.
    """
    entry = receipt.read().get("weights", {}).get(model, {})
    found, files = {}, []
    for name, (*marks, digest) in entry.get("files", {}).items():
        path = Path(entry["path"]) / name
        if mark(path) != marks:
            raise HostError(f"model {model}: {name} is not as it was when it was checked. Deploy here, then run again.")
        found[digest] = path
        files.append(HubFile(name, marks[1], f"sha256-{digest}"))
    if not files:
        raise HostError(f"model {model}: it is not here. Name a Spark that has it (`models_from`).")
    manifest = directory / f"{model}.manifest"
    manifest.write_text(encode(Listing(str(entry.get("commit", "")), tuple(files))), encoding="utf-8")
    return {**found, MANIFEST: manifest}


# --- fetch them --------------------------------------------------------------------------------------------------


class _Source(Source):
    what = "weights"
    instead = "a directory on this host (`models`)"


def fetch(model: Weights, where: WheelSource, entry: dict[str, Any]) -> dict[str, Any]:
    """Have every file of the model in place; what the receipt should say of it.

    Raises HostError when the other Spark has another model or revision, is gone, or there is no room.
    """
    path = Path(model.path)
    staging = Staging(incoming(path), pwd.getpwuid(os.geteuid()).pw_name)
    staging.prepare()
    with closing(_Source(where)) as source:
        listing = _listing(model, source)
        there = in_place(path, listing, entry)
        whole = staging.whole()
        todo = {file.key: file for file in listing.files if file.name not in there and file.key not in whole}
        meter = Meter(len(listing.files), sum(file.size for file in listing.files))
        meter.done_files = len(listing.files) - len(todo)
        meter.done = meter.size - sum(file.size - _here(staging, file) for file in todo.values())
        say(f"copying {model.model} from {where.name}: {meter} are here")
        _check_room(staging, sum(file.size - _here(staging, file) for file in todo.values()))
        for file in sorted(todo.values(), key=lambda one: -one.size):
            _bring(source, staging, file, meter)
    marks = place(path, listing, there, staging, set(entry.get("files", {})))
    known: dict[str, Any] = {"path": model.path, "files": marks}
    if model.hub:
        known |= {"repository": model.hub.repository, "asked": model.hub.revision, "commit": listing.commit}
        known |= {"listing": [asdict(file) for file in listing.files]}
    return known


def _listing(model: Weights, source: Source) -> Listing:
    try:
        listing = decode(Listing, source.read(MANIFEST, _LIMIT).decode())
        names = {check_name(file.name) for file in listing.files}
    except (WireError, UnicodeDecodeError):
        raise HostError(f"{source.name} does not answer with a list of files. Run again.") from None
    wanted = {(file.name, f"sha256-{file.sha256}") for file in model.files}
    same = not wanted or wanted == {(file.name, file.key) for file in listing.files}
    if not model.files and model.hub and model.hub.revision != "unpinned":
        same = listing.commit == model.hub.revision
    if not same or not names:
        raise HostError(
            f"{source.name} has {model.model} in another revision ({listing.commit[:12] or 'unknown'}) than the recipe "
            f"wants. Deploy there first, or name a Spark that has it (`models_from`)."
        )
    return listing


def _part(staging: Staging, file: HubFile) -> Path:
    return staging.partial / f"{file.key}.incomplete"


def _here(staging: Staging, file: HubFile) -> int:
    try:
        return min(file.size, _part(staging, file).stat().st_size)
    except OSError:
        return 0


def _check_room(staging: Staging, missing: int) -> None:
    free = shutil.disk_usage(staging.path).free
    if missing > free:
        raise HostError(
            f"{staging.path.parent}: {missing / 1e9:.2f} GB are to come, {free / 1e9:.2f} GB are free. Free room "
            f"there, then run again."
        )


def _bring(source: Source, staging: Staging, file: HubFile, meter: Meter) -> None:
    part = _part(staging, file)
    for _ in range(2):
        digest = _receive(source, file, part, meter)
        if f"sha256-{digest}" == file.key:
            os.replace(part, staging.partial / file.key)
            if staging.take(file):
                meter.file()
                return
        part.unlink(missing_ok=True)
        meter.done -= file.size
        say(f"{file.name} came with other bytes than {source.name} lists")
    raise HostError(
        f"{file.name}: twice, {source.name} handed out other bytes than it lists. Deploy there, which mends it, then "
        f"run again."
    )


def _receive(source: Source, file: HubFile, part: Path, meter: Meter) -> str:
    """All bytes of a file, from the first that is not here yet on; their SHA-256."""
    digest, name = hashlib.sha256(), file.key.removeprefix("sha256-")
    with open(os.open(part, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as target:
        if os.fstat(target.fileno()).st_size > file.size:
            target.truncate(0)
        while chunk := target.read(_CHUNK):
            digest.update(chunk)
        failures = 0
        while target.tell() < file.size:
            before = target.tell()
            try:
                response = source.get(name, before)
                while target.tell() < file.size:
                    if not (chunk := response.read(min(_CHUNK, file.size - target.tell()))):
                        raise ConnectionError("it stopped in the middle of a file")
                    target.write(chunk)
                    digest.update(chunk)
                    meter.add(len(chunk))
            except (http.client.HTTPException, ConnectionError, TimeoutError) as error:
                failures = 1 if target.tell() > before else failures + 1
                source.gave_up(error, failures)
    return digest.hexdigest()
