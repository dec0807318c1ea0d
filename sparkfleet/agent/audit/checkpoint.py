"""Read what a checkpoint says of itself: its configuration, and the header of each safetensors file. No weights."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import HostError
from ..models import model_files

#: No configuration that people publish comes near: lists of 10,000 excluded layers are 1 MB.
_CONFIG_LIMIT = 16_000_000

#: A safetensors header is JSON; the format itself allows no more (https://github.com/huggingface/safetensors).
_HEADER_LIMIT = 100_000_000

#: Characters of a tensor's name that are kept: names come from the network and end on terminals.
_NAME_LIMIT = 300


@dataclass(frozen=True)
class Tensor:
    """One tensor, as the header of its file describes it; ``size`` in bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int


@dataclass(frozen=True)
class Checkpoint:
    """``config`` is config.json, with the quantisation of ``hf_quant_config.json`` where it has none of its own."""

    config: dict[str, Any]
    tensors: tuple[Tensor, ...]


def read(path: Path) -> Checkpoint:
    """The checkpoint in the directory ``path``. Raises HostError when it is none, or is cut off."""
    try:
        names = [entry.name for entry in os.scandir(path) if entry.is_file()]
        index = path / model_files.INDEX
        text = _bounded(index, _HEADER_LIMIT) if index.name in names else None
        shards = [one for one in model_files.needed(names, text) if one.endswith(".safetensors")]
        config = _config(path)
        tensors = {one.name: one for shard in shards for one in tensors_of(path / shard)}
    except OSError as error:
        raise HostError(f"{error.filename or path}: cannot be read: {error.strerror or error}.") from None
    return Checkpoint(config, tuple(tensors.values()))


def _config(path: Path) -> dict[str, Any]:
    config = _object(path / "config.json")
    beside = path / "hf_quant_config.json"  # modelopt writes it, older versions nothing else
    if "quantization_config" not in config and beside.is_file():
        said = _object(beside).get("quantization")
        if isinstance(said, dict):
            config["quantization_config"] = {"quant_method": "modelopt", **said}
    return config


def _object(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(_bounded(path, _CONFIG_LIMIT))
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise HostError(f"{path}: expected a JSON object. Fetch the model again.")
    return content


def _bounded(path: Path, limit: int) -> str:
    with path.open("rb") as file:
        raw = file.read(limit + 1)
    if len(raw) > limit:
        raise HostError(f"{path}: larger than {limit / 1e6:.0f} MB, which no such file is. Fetch the model again.")
    return raw.decode("utf-8", "replace")


def tensors_of(path: Path) -> list[Tensor]:
    """The tensors of one safetensors file: eight bytes of length, JSON, data.

    Raises HostError when its header cannot be right, and when the file ends before its data does.
    """
    try:
        with path.open("rb") as file:
            whole = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            if length > min(_HEADER_LIMIT, whole - 8):
                raise ValueError
            header = json.loads(file.read(length))
        found = [_tensor(name, entry) for name, entry in header.items() if name != "__metadata__"]
        if any(end > whole - 8 - length for _, end in found):
            raise ValueError
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise HostError(f"{path}: cut off, or no safetensors file. Fetch it again.") from None
    return [tensor for tensor, _ in found]


def _tensor(name: str, entry: dict[str, Any]) -> tuple[Tensor, int]:
    begin, end = entry["data_offsets"]
    shape = tuple(entry["shape"])
    if any(type(number) is not int or number < 0 for number in (begin, end, *shape)) or begin > end:
        raise ValueError
    return Tensor(plain(name, _NAME_LIMIT), plain(entry["dtype"], 16), shape[:8], end - begin), end


def plain(text: str, limit: int) -> str:
    """The beginning of ``text``, with nothing in it that a terminal would obey."""
    text = text[:limit]
    return text if text.isprintable() else "".join(one if one.isprintable() else "?" for one in text)
