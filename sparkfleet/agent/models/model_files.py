"""Which files of a model's repository an engine needs, and whether a safetensors file is whole. Pure but for reading.

A repository often holds the same weights in several forms (``original/``, ``metal/``, pickles, GGUF). An engine loads
the safetensors that the index names, so those are taken and no others.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from ..errors import HostError

INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"

# fmt: off
_WEIGHTS = frozenset((
    ".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".ggml", ".onnx", ".onnx_data", ".msgpack", ".h5", ".ot",
    ".tflite", ".mlmodel", ".npz",
))
_DOCUMENTS = frozenset((
    ".md", ".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp", ".pdf", ".mp4", ".ipynb", ".zip", ".gz", ".tar",
))
# fmt: on

#: A safetensors header is JSON; the format itself allows no more (https://github.com/huggingface/safetensors).
_HEADER_LIMIT = 100_000_000


def check_name(name: str) -> str:
    """``name`` if it is a plain path inside a model's directory.

    Raises HostError for any other: names come from the network, and become paths.
    """
    path = PurePosixPath(name)
    plain = bool(name) and name == str(path) and not path.is_absolute() and ".." not in path.parts and name != "."
    if not plain or any(ord(character) < 32 for character in name):
        raise HostError(f"a file of the model is called {name!r:.80}: expected a plain path inside its directory.")
    return name


def needed(names: Iterable[str], index: str | None) -> list[str]:
    """The names that an engine needs, sorted. ``index``: the text of ``INDEX`` where the repository has one.

    Raises HostError when the weights cannot be told, or when the index names one that is not there.
    """
    there = {check_name(name) for name in names}
    weights = _weights(there, index)
    if missing := sorted(weights - there):
        raise HostError(
            f"{INDEX} names {missing[0]}{f' and {len(missing) - 1} more' if missing[1:] else ''}, not there. The copy "
            f"or revision is incomplete: fetch it again, or pin another revision."
        )
    # A directory with weights of its own is another form of the same model, or another model.
    others = {PurePosixPath(name).parts[0] for name in there - weights if "/" in name and _suffix(name) in _WEIGHTS}
    rest = (name for name in there if _suffix(name) not in _WEIGHTS | _DOCUMENTS and not _hidden(name))
    return sorted(weights | {name for name in rest if "/" not in name or name.split("/")[0] not in others})


def _weights(there: set[str], index: str | None) -> set[str]:
    if index is not None:
        return shards(index)
    if _SINGLE in there:
        return {_SINGLE}
    found = {name for name in there if "/" not in name and _suffix(name) == ".safetensors"}
    if not found:
        raise HostError(
            f"no safetensors weights: expected {INDEX}, {_SINGLE} or other *.safetensors. Only those are taken by "
            f"themselves (pickles run code): use another repository, or list the model's files in the recipe."
        )
    return found


def shards(index: str) -> set[str]:
    """The files that a safetensors index names. Raises HostError when it is none."""
    try:
        names = set(json.loads(index)["weight_map"].values())
        return {check_name(name) for name in names if isinstance(name, str)}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise HostError(f"{INDEX} is not a safetensors index. Fetch it again, or pin another revision.") from None


def safetensors_size(path: Path) -> int:
    """The size that a safetensors file must have by its own header.

    Raises HostError when it has none that can be read: the file was cut off, or is something else.
    """
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > min(_HEADER_LIMIT, os.fstat(file.fileno()).st_size):
                raise ValueError
            header = json.loads(file.read(length))
        ends = [int(entry["data_offsets"][1]) for name, entry in header.items() if name != "__metadata__"]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise HostError(f"{path}: cut off, or no safetensors file. Fetch it again.") from None
    return 8 + length + max(ends, default=0)


def _suffix(name: str) -> str:
    return PurePosixPath(name).suffix.lower()


def _hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))
