"""A recipe's file with its model pinned: a few lines change, all others stay as somebody wrote them."""

import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

import yaml

from sparkfleet.catalog.recipes import File, KnownBad, Recipe, entry
from sparkfleet.catalog.yaml import Document, read
from sparkfleet.errors import UserError
from sparkfleet.hub import Revision


def pinnable(path: Path) -> Recipe:
    """The recipe in ``path``. Raises UserError when it is not valid, or not one whose model is on the hub."""
    found = entry(path)
    if isinstance(found, KnownBad):
        raise UserError(found.refusal())
    if found.model.repository is None:
        raise UserError(f"{path}: its model is of no repository; there is nothing to pin.")
    return found


def pin(path: Path, recipe: Recipe, revision: Revision) -> bool:
    """Write ``revision`` into the recipe's file; whether anything changed.

    Raises UserError when the file is written in a way that leaves no line to change.
    """
    model = recipe.model
    if (model.revision, model.files) == (revision.commit, revision.files):
        return False
    text = edited(read(path), path.read_bytes().decode("utf-8"), revision)  # with its own line ends
    _replace(path, text, _expected(recipe, revision))
    return True


def edited(document: Document, text: str, revision: Revision) -> str:
    """``text`` with commit and files of the model replaced; ``bytes`` and ``source``, which they supersede, go."""
    model = _value(document.node, "model")
    if not isinstance(model, yaml.MappingNode) or model.flow_style:
        raise UserError(
            f"{document.path}:{document.line('model')}: model: write one key a line, so that it can be pinned."
        )
    lines = text.splitlines(keepends=True)
    gone: set[int] = set()
    new: list[str] = []
    at = -1
    for key, value in model.value:
        first = key.start_mark.line
        if key.value == "revision":
            at = first
            new = _revision(lines[at], value, revision)
        elif key.value in ("files", "bytes", "source"):
            gone |= set(range(first, _last_line(value) + 1))
    if at < 0:
        raise UserError(f"{document.path}:{document.line('model')}: model: it has no revision to pin.")
    kept = [(i, line) for i, line in enumerate(lines) if i not in gone]
    return "".join("".join(new) if i == at else line for i, line in kept)


def _revision(line: str, value: yaml.Node, revision: Revision) -> list[str]:
    """The line of ``revision``, with whatever stands behind its value, and the files below it."""
    start, end = value.start_mark.column, value.end_mark.column
    ending = line[len(line.rstrip("\r\n")) :] or "\n"
    indent = line[: len(line) - len(line.lstrip())]
    head = f"{line[:start]}{revision.commit}{line[end:].rstrip()}{ending}"
    rows = [f"{indent}  - {_row(file)}{ending}" for file in revision.files]
    return [head, f"{indent}files:{ending}", *rows]


def _row(file: File) -> str:
    return f"{{name: {_scalar(file.name)}, size: {file.size}, sha256: {_scalar(file.sha256)}}}"


def _scalar(text: str) -> str:
    """``text`` as YAML reads it back: some hashes look like numbers, some names like other things."""
    plain = re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_./-]*", text) and yaml.safe_load(text) == text
    return text if plain else yaml.safe_dump(text, default_style='"', width=len(text) * 10 + 80).strip()


def _value(node: yaml.Node | None, name: str) -> yaml.Node | None:
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((value for key, value in node.value if key.value == name), None)


def _last_line(node: yaml.Node) -> int:
    """The last line that belongs to a value: where a block ends, YAML's own marks are already at what follows."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _last_line(last[1] if isinstance(last, tuple) else last)
    first, end = node.start_mark.line, node.end_mark
    return int(end.line - 1 if end.column == 0 and end.line > first else end.line)


def _expected(recipe: Recipe, revision: Revision) -> Recipe:
    model = recipe.model.model_copy(
        update={"revision": revision.commit, "files": revision.files, "bytes": None, "source": None}
    )
    return recipe.model_copy(update={"model": model})


def _replace(path: Path, text: str, expected: Recipe) -> None:
    """Put ``text`` in place in one step, if it says what it should and nothing else changed."""
    real = path.resolve()
    try:
        with tempfile.TemporaryDirectory(dir=real.parent, prefix=".pin-") as scratch:
            new = Path(scratch) / path.name
            new.write_text(text, encoding="utf-8", newline="")
            new.chmod(real.stat().st_mode & 0o777)
            if entry(new) != expected:
                raise UserError(f"{path}: written in a way that this command cannot change; pin it by hand.")
            os.replace(new, real)
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}.") from None


def sizes(files: Sequence[File]) -> str:
    """How much it is, for people."""
    return f"{len(files)} files, {sum(file.size for file in files) / 1e9:.1f} GB"
