"""Model weights: every file of the manifest, byte for byte, before any unit may use them."""

import hashlib
import os
from pathlib import Path
from typing import Any

from .. import receipt
from ..errors import HostError
from ..paths import sha256, sync_directory
from ..progress import Meter, say
from ..shapes import Author, Glance, WeightFile, Weights, WeightsOrder, WeightsState
from .incoming import fetched, mark

_CHUNK = 8 * 1024 * 1024

#: What an engine picks up from a model's directory by its ending.
_LOADED = frozenset((".safetensors", ".bin", ".pt", ".json", ".jinja", ".py", ".model"))


def look(model: Glance, known: dict[str, Any]) -> WeightsState:
    """Whether the files are those that were checked when they were laid down, without reading them.

    ``known`` is the receipt's section: a file counts as checked while its inode, size and time are what they were then.
    """
    path, entry = Path(model.path), known.get(model.model, {})
    files = model.files or remembered(entry)
    marks = {file.name: mark(path / file.name) for file in files}
    changed = max((there[2] / 1e9 if there else 0.0 for there in marks.values()), default=0.0)
    checked = entry.get("files", {})
    problems = {file: _problem(file, marks[file.name], checked.get(file.name)) for file in files}
    whole = sum(file.size for file, problem in problems.items() if not problem)
    others = [f"{name} is not of this model" for name in foreign(path, files)]
    others += [f"{file.name} cannot be read by its engine" for file in files if not _readable(model, file)]
    revision = _other_revision(model, entry)
    problem = next(filter(None, (revision, *problems.values(), *others)), "")
    return WeightsState(model.model, problem, changed, fetched(path) + (0 if revision else whole))


def remembered(entry: dict[str, Any]) -> tuple[WeightFile, ...]:
    """The files of a model as the receipt has them."""
    return tuple(WeightFile(name, size, sha256) for name, (_, size, _, sha256) in entry.get("files", {}).items())


def _other_revision(model: Glance, entry: dict[str, Any]) -> str:
    """How what the receipt knows differs from the wanted revision; empty for a model that has a manifest."""
    if model.files:
        return ""
    if not entry.get("files"):
        return "missing"
    if entry.get("repository") != model.repository:
        return f"it is {entry.get('repository') or 'another'}"
    if model.revision not in ("unpinned", entry.get("commit"), entry.get("asked")):
        return f"it is revision {str(entry.get('commit'))[:12]}, not {model.revision[:12]}"
    return ""


def foreign(path: Path, files: tuple[WeightFile, ...]) -> list[str]:
    """Files beside the model's own that an engine would load with it: it takes whatever has such a name."""
    ours = {file.name for file in files}
    there = (entry for entry in path.rglob("*") if entry.suffix in _LOADED and entry.is_file())
    return sorted(name for entry in there if (name := str(entry.relative_to(path))) not in ours)


def _readable(model: Glance, file: WeightFile) -> bool:
    try:
        return os.stat(Path(model.path) / file.name).st_mode & 0o444 == 0o444
    except OSError:
        return True  # missing, which is said already


def _problem(file: WeightFile, mark: list[int] | None, checked: list[Any] | None) -> str:
    if mark is None:
        return f"{file.name} is missing"
    if mark[1] != file.size:
        return f"{file.name} has {mark[1]} bytes, not {file.size}"
    return "" if checked == [*mark, file.sha256] else f"{file.name} was changed or never checked"


def apply(order: WeightsOrder, author: Author) -> None:
    """Lay every model down; files already there with the right bytes stay as they are."""
    from . import (
        hub,
        peer,  # Python's HTTP: a look at a host has no need to import it
    )

    known = dict(receipt.read().get("weights", {}))
    for model in order.models:
        entry = known.get(model.model, {})
        try:
            if model.peer:
                known[model.model] = peer.fetch(model, model.peer, entry)
            elif model.hub is None or Path(model.source).is_dir():
                known[model.model] = _from_directory(model, entry)
            else:
                known[model.model] = hub.fetch(model, model.hub, entry, order.token)
        except OSError as error:
            raise HostError(f"{model.path}: weights cannot be laid down: {error.strerror or error}.") from None
        receipt.record(author, weights=known)
        _refuse_foreign(model, known[model.model])
        size = sum(file.size for file in remembered(known[model.model]))
        say(f"weights of {model.model} complete: {size / 1e6:.1f} MB")


def _from_directory(model: Weights, entry: dict[str, Any]) -> dict[str, Any]:
    from . import directory

    path, source = Path(model.path), Path(model.source)
    files, commit = (model.files, "") if model.files else directory.manifest(source, model.hub)
    path.mkdir(mode=0o755, parents=True, exist_ok=True)
    _refuse_foreign(model, {"files": {**entry.get("files", {}), **{file.name: [] for file in files}}})
    meter = Meter(len(files), sum(file.size for file in files))
    marks = {file.name: _ensure(file, path, source, meter) for file in files}
    for name in sorted(entry.get("files", {}).keys() - marks.keys()):
        (path / name).unlink(missing_ok=True)
    sync_directory(path)
    known: dict[str, Any] = {"path": model.path, "files": marks}
    if model.hub:
        known |= {"repository": model.hub.repository, "asked": model.hub.revision, "commit": commit}
    return known


def _refuse_foreign(model: Weights, entry: dict[str, Any]) -> None:
    ours = tuple(WeightFile(name, 0, "") for name in entry["files"])
    if odd := foreign(Path(model.path), ours):
        raise HostError(
            f"{model.path}: {', '.join(odd[:5])}: not of model {model.model}, whose engine would load it. Move it away."
        )


def _ensure(file: WeightFile, path: Path, source: Path, meter: Meter) -> list[Any]:
    target = path / file.name
    digest = _digest_in_place(file, target, source / file.name)
    if digest:
        meter.add(file.size)
    else:
        say(f"copying {file.name} ({file.size / 1e6:.1f} MB)")
        digest = _copy(file, source, target, meter)
    meter.file()
    if target.stat().st_mode & 0o444 != 0o444:
        target.chmod(0o644)
        say(f"{file.name} made readable")
    found = mark(target)
    assert found
    return [*found, digest]


def _digest_in_place(file: WeightFile, target: Path, source: Path) -> str:
    """The SHA-256 of what is in place, if those are the right bytes; else nothing."""
    there = mark(target)
    if there is None or there[1] != file.size:
        return ""
    found = sha256(target)
    return found if found == (file.sha256 or sha256(source)) else ""


def _copy(file: WeightFile, directory: Path, target: Path, meter: Meter) -> str:
    source = directory / file.name
    beside = target.with_name(f".{target.name}.incoming")
    digest = hashlib.sha256()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with source.open("rb") as reader, beside.open("wb") as writer:
            if not file.sha256:
                _refuse_private(source, os.fstat(reader.fileno()), os.stat(directory).st_uid)
            while chunk := reader.read(_CHUNK):
                digest.update(chunk)
                writer.write(chunk)
                meter.add(len(chunk))
            writer.flush()
            os.fsync(writer.fileno())
        if file.sha256 and digest.hexdigest() != file.sha256:
            raise HostError(
                f"{source}: the bytes are not those of the manifest (expected SHA-256 {file.sha256[:12]}…, found "
                f"{digest.hexdigest()[:12]}…). Fetch the file again, then run again."
            )
        if beside.stat().st_size != file.size:
            raise HostError(f"{source}: it changed while it was copied. Run again when it is at rest.")
        beside.chmod(0o644)  # the system user reads it; tools that save weights often leave 0600
        os.replace(beside, target)
        return digest.hexdigest()
    except FileNotFoundError:
        raise HostError(f"{source}: the weights are not there. Mount or copy them, or correct `models`.") from None
    finally:
        beside.unlink(missing_ok=True)


def _refuse_private(source: Path, status: os.stat_result, owner: int) -> None:
    """Root reads every file, and everybody may read the copy: a link to what its ``owner`` cannot read is no model."""
    if owner not in (0, status.st_uid) and not status.st_mode & 0o004:
        raise HostError(
            f"{source}: it is a private file of another user than the directory's. If it is of the model, make it "
            f"readable (chmod o+r), then run again."
        )
