"""Count a checkpoint: bytes by kind of layer and quantisation, and those read for one token. Pure but for ``audit``."""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import HostError
from . import checkpoint, kinds, quantized
from .checkpoint import Checkpoint, Tensor
from .quantized import Scheme
from .shapes import Audit, AuditQuestion, Audits, Group, Model

#: Groups that are told one by one; a hostile file may have as many as it has tensors.
_GROUPS = 400

#: What is read for no token of a text: a draft model is read only with speculation, the others for pictures and sound.
_IDLE = (kinds.DRAFT, kinds.SENSES)

#: Keys of configurations for the number of experts, and of those that one token goes to.
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_ACTIVE = ("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "top_k_experts", "moe_topk")

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")


@dataclass
class _Alike:
    """Modules that are alike while they are counted."""

    kind: str
    module: str
    shape: tuple[int, ...]
    excluded: bool
    layers: set[int | None] = field(default_factory=set)
    tensors: int = 0
    size: int = 0


def audit(question: AuditQuestion) -> Audits:
    """The audit of every model asked about; what cannot be read is told in its place."""
    return Audits(tuple(_of_model(model) for model in question.models))


def _of_model(model: Model) -> Audit:
    path = next((one for one in (model.path, model.source) if (Path(one) / "config.json").is_file()), model.path)
    try:
        return count(model.recipe, path, checkpoint.read(Path(path)))
    except HostError as error:
        return Audit(model.recipe, path, trouble=str(error))


def count(recipe: str, path: str, found: Checkpoint) -> Audit:
    """What the checkpoint ``found`` consists of."""
    said = quantized.scheme(found.config)
    experts, active = _numbers(found.config)
    groups = _groups(found, said, active / experts if experts else 1.0)
    has_experts = any(group.kind == kinds.EXPERTS for group in groups)
    notes = list(said.notes)
    if has_experts and not experts:
        notes.append("its configuration does not say how many experts a token goes to: all of them are counted")
    architectures = found.config.get("architectures")
    name = architectures[0] if isinstance(architectures, list) and architectures else ""
    return Audit(
        recipe,
        path,
        checkpoint.plain(str(name), 80),
        checkpoint.plain(str(said), 200),
        experts if has_experts else 0,
        active if has_experts else 0,
        _told(groups),
        tuple(notes),
    )


def _groups(found: Checkpoint, said: Scheme, share: float) -> list[Group]:
    modules: dict[str, list[Tensor]] = defaultdict(list)
    for tensor in found.tensors:
        modules[quantized.module_of(tensor.name)].append(tensor)
    last = _number(_text_config(found.config), ("num_hidden_layers",))
    alike: dict[tuple[Any, ...], _Alike] = {}
    for module, tensors in modules.items():
        number = kinds.layer(module)
        name = _NUMBER.sub("*", module)
        # Layers beyond the model's own are a draft model's: DeepSeek and GLM keep it there.
        kind = kinds.DRAFT if last and number is not None and number >= last else kinds.kind(name)
        how, shape = quantized.method(tensors, said), quantized.main_of(tensors).shape
        key = (kind, name, how, quantized.stored(tensors), shape)
        if key not in alike:
            alike[key] = _Alike(kind, name, shape, how == "none" and said.excludes(module))
        one = alike[key]
        one.layers.add(number)
        one.tensors += len(tensors)
        one.size += sum(tensor.size for tensor in tensors)
    has_head = any(one.kind == kinds.HEAD for one in alike.values())
    return [
        Group(
            kind, name, how, stored, shape, len(one.layers), one.tensors, one.size, _read(one, share, has_head),
            one.excluded,
        )
        for (kind, name, how, stored, shape), one in alike.items()
    ]  # fmt: skip


def _read(one: _Alike, share: float, has_head: bool) -> int:
    """Bytes of ``one`` that are read for a token."""
    if one.kind in _IDLE:
        return 0
    if one.kind == kinds.EXPERTS:
        return round(one.size * share)
    if one.kind == kinds.EMBEDDING and (has_head or "per_layer" in one.module):
        return one.size // max(one.shape[0] if one.shape else 1, 1)  # one row
    return one.size  # an embedding that is lm_head, too, is read whole


def _told(groups: Iterable[Group]) -> tuple[Group, ...]:
    """Largest first, what is beyond all measure as one group, so that nothing is dropped."""
    ordered = sorted(groups, key=lambda one: (-one.read, -one.size, one.module))
    rest = ordered[_GROUPS:]
    if not rest:
        return tuple(ordered)
    size, read = sum(one.size for one in rest), sum(one.read for one in rest)
    tensors = sum(one.tensors for one in rest)
    return (*ordered[:_GROUPS], Group(kinds.UNKNOWN, f"{len(rest)} more", "several", "", (), 0, tensors, size, read))


def _numbers(config: dict[str, Any]) -> tuple[int, int]:
    """How many experts there are and how many of them a token goes to; zeros when it does not say both."""
    inner = _text_config(config)
    experts, active = _number(inner, _EXPERTS), _number(inner, _ACTIVE)
    return (experts, min(experts, active)) if experts and active else (0, 0)


def _text_config(config: dict[str, Any]) -> dict[str, Any]:
    """The part about the language model; multimodal configurations keep it apart."""
    for name in ("text_config", "llm_config", "language_config"):
        if isinstance(config.get(name), dict):
            return {**config, **config[name]}
    return config


def _number(config: dict[str, Any], names: Iterable[str]) -> int:
    found = (config.get(name) for name in names)
    return next((one for one in found if type(one) is int and 0 < one < 10**6), 0)
