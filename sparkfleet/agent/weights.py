"""Model weights: every file of the manifest, byte for byte, before any unit may use them."""

import hashlib
import os
from pathlib import Path
from typing import Any

from . import receipt
from .errors import HostError
from .paths import sha256, sync_directory
from .progress import say
from .shapes import Author, Glance, WeightFile, Weights, WeightsOrder, WeightsState

_CHUNK = 8 * 1024 * 1024

#: What an engine picks up from a model's directory by its ending.
_LOADED = frozenset((".safetensors", ".bin", ".pt", ".json", ".jinja", ".py", ".model"))


def look(model: Glance, known: dict[str, Any]) -> WeightsState:
    """Whether the files are those that were checked when they were laid down, without reading them.

    ``known`` is the receipt's section: a file counts as checked while its inode, size and time are what they were then.
    """
    checked = known.get(model.model, {}).get("files", {})
    marks = {file.name: _mark(Path(model.path) / file.name) for file in model.files}
    changed = max(mark[2] / 1e9 if mark else 0.0 for mark in marks.values())
    problems = [_problem(file, marks[file.name], checked.get(file.name)) for file in model.files]
    problems += [f"{name} is not of this model" for name in foreign(Path(model.path), model.files)]
    problems += [f"{file.name} cannot be read by its engine" for file in model.files if not _readable(model, file)]
    return WeightsState(model.model, next(filter(None, problems), ""), changed)


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
    known = dict(receipt.read().get("weights", {}))
    for model in order.models:
        path = Path(model.path)
        try:
            path.mkdir(mode=0o755, parents=True, exist_ok=True)
            _refuse_foreign(model)
            marks = {file.name: _ensure(file, path, Path(model.source)) for file in model.files}
            sync_directory(path)
        except OSError as error:
            raise HostError(f"{path}: weights cannot be laid down: {error.strerror or error}.") from None
        known[model.model] = {"path": model.path, "files": marks}
        receipt.record(author, weights=known)
        say(f"weights of {model.model} complete: {sum(file.size for file in model.files) / 1e6:.1f} MB")


def _refuse_foreign(model: Weights) -> None:
    if odd := foreign(Path(model.path), model.files):
        raise HostError(
            f"{model.path}: {', '.join(odd[:5])}: not of model {model.model}, whose engine would load it. Move it away."
        )


def _ensure(file: WeightFile, path: Path, source: Path) -> list[Any]:
    target = path / file.name
    mark = _mark(target)
    if mark is None or mark[1] != file.size or sha256(target) != file.sha256:
        say(f"copying {file.name} ({file.size / 1e6:.1f} MB)")
        _copy(file, source / file.name, target)
        mark = _mark(target)
    if target.stat().st_mode & 0o444 != 0o444:
        target.chmod(0o644)
        say(f"{file.name} made readable")
    assert mark
    return [*mark, file.sha256]


def _copy(file: WeightFile, source: Path, target: Path) -> None:
    beside = target.with_name(f".{target.name}.incoming")
    digest = hashlib.sha256()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with source.open("rb") as reader, beside.open("wb") as writer:
            while chunk := reader.read(_CHUNK):
                digest.update(chunk)
                writer.write(chunk)
            writer.flush()
            os.fsync(writer.fileno())
        if digest.hexdigest() != file.sha256:
            raise HostError(
                f"{source}: the bytes are not those of the manifest (expected SHA-256 {file.sha256[:12]}…, found "
                f"{digest.hexdigest()[:12]}…). Fetch the file again, then run again."
            )
        beside.chmod(0o644)  # the system user reads it; tools that save weights often leave 0600
        os.replace(beside, target)
    except FileNotFoundError:
        raise HostError(
            f"{source}: the weights are not there. Mount or copy them, or correct `models_source`."
        ) from None
    finally:
        beside.unlink(missing_ok=True)


def _mark(path: Path) -> list[int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return [status.st_ino, status.st_size, status.st_mtime_ns]
