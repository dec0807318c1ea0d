"""How a layer is quantised, by its tensors and by what the checkpoint's configuration says. Pure."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from .checkpoint import Tensor, plain

#: Data types that are not quantised.
WIDE = frozenset(("BF16", "F16", "F32", "F64"))

#: Those of scales that are powers of two, as MXFP4 and MXFP8 have them.
_POWERS = frozenset(("U8", "F8_E8M0"))

#: What may follow the name of a module in the name of a tensor; all but the first four only describe the weights.
_PARTS = frozenset((
    "weight", "weight_packed", "qweight", "bias", "weight_scale", "weight_scale_2", "weight_scale_inv", "weight_shape",
    "weight_global_scale", "weight_zero_point", "weight_g_idx", "input_scale", "input_global_scale", "output_scale",
    "scales", "qzeros", "g_idx", "k_scale", "v_scale", "q_scale",
))  # fmt: skip

#: The same for experts in one tensor: gpt-oss has ``experts.gate_up_proj_blocks``.
_FUSED = re.compile(r"^(\w*proj)_(blocks|scales?|bias|scale_inv|scale_2|weight_scale\w*|input_scale)$")

#: Keys under which configurations list what stays in 16 bits, by their writers: compressed-tensors and modelopt
#: (ignore), modelopt (exclude_modules), FP8, AWQ and mxfp4 (modules_to_not_convert), NVIDIA's newest (ignored_layers).
_LISTS = ("ignore", "exclude_modules", "modules_to_not_convert", "ignored_layers")

_LIST_LIMIT = 100_000


def module_of(name: str) -> str:
    """The module that the tensor ``name`` is a part of."""
    module, _, part = name.rpartition(".")
    if part in _PARTS and module:
        return module
    fused = _FUSED.match(part)
    return f"{module}.{fused[1]}" if fused and module else name


def part_of(name: str) -> str:
    """What the tensor ``name`` is to its module."""
    return name.removeprefix(module_of(name)).lstrip("._") or "weight"


@dataclass(frozen=True)
class Scheme:
    """What a configuration says. ``name``: whose format; ``detail``: bits and groups, in its words.

    ``plain`` and ``wild`` are names and patterns of modules that stay in 16 bits. ``activations``: ``W4A16`` or alike
    where it says so.
    """

    name: str = ""
    detail: str = ""
    activations: str = ""
    bits: int = 0
    plain: frozenset[str] = frozenset()
    wild: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    def __str__(self) -> str:
        return " ".join(filter(None, (self.name, self.detail))) or "none"

    def excludes(self, module: str) -> bool:
        """Whether the configuration says that ``module`` is not quantised."""
        # A multimodal wrapper puts language_model into names; the list may have them without it.
        for name in {module, module.replace("language_model.", "")}:
            parts = name.split(".")
            tails = {".".join(parts[i:]) for i in range(len(parts))}
            heads = {".".join(parts[:i]) for i in range(1, len(parts))}
            if self.plain & (tails | heads) or any(fnmatchcase(name, pattern) for pattern in self.wild):
                return True
        return False


def scheme(config: dict[str, Any]) -> Scheme:
    """What ``config`` (config.json) says of quantisation; whatever it holds, no exception."""
    said = _dict(config.get("quantization_config")) or _dict(config.get("compression_config"))
    if not said:
        said = _dict(_dict(config.get("text_config")).get("quantization_config"))
    if not said:
        return Scheme()
    name = _text(said.get("quant_method")) or "unnamed"
    names, notes = _excluded(said)
    exact, wild, odd = set(), [], 0
    for one in names:
        pattern = as_glob(one)
        if pattern is None:
            odd += 1
        elif set(pattern) & set("*?["):
            wild.append(pattern)
        else:
            exact.add(pattern)
    if odd:
        notes.append(f"{odd} entries of its exclusion list are regular expressions that are not understood here")
    weights = _weights(said)
    bits = _number(weights.get("num_bits")) or _number(said.get("bits")) or _number(said.get("w_bit"))
    return Scheme(
        name, _detail(said, weights), _activations(said), bits, frozenset(exact), tuple(wild[:500]), tuple(notes)
    )


def as_glob(pattern: str) -> str | None:
    """An entry of an exclusion list as a glob; None for a regular expression that says more than a glob can.

    Regular expressions of a file from the network are not run: some take a lifetime.
    """
    if not pattern.startswith("re:"):
        return pattern
    text = pattern.removeprefix("re:").removeprefix("^")
    end = "" if text.endswith("$") else "*"  # compressed-tensors uses re.match: it need not reach the end
    text = text.removesuffix("$").replace(r"\.", "\0").replace(".*", "*").replace(r"\d+", "*").replace(".", "?")
    if re.search(r"[\\()\[\]{}|+^$]|(?<!\*)\?\?", text):
        return None
    return (text.replace("\0", ".") + end).replace("**", "*")


def _excluded(said: dict[str, Any]) -> tuple[list[str], list[str]]:
    names = [name for key in _LISTS for name in _texts(said.get(key))]
    names += [name for name, one in _dict(said.get("extra_config")).items() if _number(_dict(one).get("bits")) >= 16]
    names += [f"re:{name.removeprefix('-:')}" for name in _dict(said.get("dynamic")) if name.startswith("-:")]
    notes = [f"its exclusion list has {len(names)} entries"] if len(names) > _LIST_LIMIT else []
    return names[:_LIST_LIMIT], notes


def _weights(said: dict[str, Any]) -> dict[str, Any]:
    groups = _dict(said.get("config_groups"))
    return next((_dict(_dict(one).get("weights")) for one in groups.values()), {})


def _detail(said: dict[str, Any], weights: dict[str, Any]) -> str:
    if algorithm := _text(said.get("quant_algo")):
        return algorithm
    if block := said.get("weight_block_size"):
        return "block " + "x".join(str(one)[:6] for one in block[:2]) if isinstance(block, list) else "block"
    bits = _number(said.get("bits")) or _number(weights.get("num_bits"))
    group = _number(said.get("group_size")) or _number(weights.get("group_size"))
    words = (_text(said.get("format")), f"{bits}-bit" if bits else "", f"group {group}" if group > 0 else "")
    return " ".join(filter(None, words))


def _activations(said: dict[str, Any]) -> str:
    """``W4A16`` or the like where the configuration tells; else nothing."""
    algorithm = _text(said.get("quant_algo")).upper()
    if found := re.search(r"W\d+A\d+", algorithm):
        return found[0]
    for one in map(_dict, _dict(said.get("config_groups")).values()):
        bits = _number(_dict(one.get("weights")).get("num_bits"))
        if bits and "input_activations" in one:
            return f"W{bits}A{_number(_dict(one['input_activations']).get('num_bits')) or 16}"
    return ""


def method(tensors: Sequence[Tensor], said: Scheme) -> str:
    """How the module of ``tensors`` is quantised; ``none`` where its weights are 16 bits or wider."""
    main = main_of(tensors)
    others = {part_of(one.name): one for one in tensors if one is not main}
    scales = {one.dtype for part, one in others.items() if "scale" in part}
    return "none" if main.dtype in WIDE else _named(main, others.keys(), scales, said)


def _named(main: Tensor, parts: Collection[str], scales: set[str], said: Scheme) -> str:
    owner = f"{said.name} " if said.name and said.name not in ("mxfp4", "fp8") else ""
    inputs = any(part.startswith("input_") for part in parts)
    if main.dtype in ("U8", "F4", "F4_E2M1") and scales:
        if scales <= _POWERS:
            return f"{owner}MXFP4"
        return f"{owner}NVFP4 {said.activations or ('W4A4' if inputs else 'W4A16')}"
    if main.dtype.startswith("F8_"):
        if scales and scales <= _POWERS:
            return f"{owner}MXFP8"
        block = "weight_scale_inv" in parts or "scale_inv" in parts
        return f"{owner}FP8 block" if block else f"{owner}FP8"
    if main.dtype == "I32" and parts:
        return f"{owner}INT{said.bits or 4}"
    if main.dtype == "I8" and scales:
        return f"{owner}INT8"
    return f"unknown ({main.dtype})"


def main_of(tensors: Sequence[Tensor]) -> Tensor:
    """The weights among the tensors of a module: the largest, where a scale and a bias are none."""
    return max(tensors, key=lambda one: ("scale" not in part_of(one.name), one.size))


def stored(tensors: Sequence[Tensor]) -> str:
    """The data types in the files, the weights' own first."""
    main = main_of(tensors)
    return " + ".join(dict.fromkeys((main.dtype, *sorted(one.dtype for one in tensors))))


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _texts(value: object) -> Iterable[str]:
    return (one[:500] for one in value if isinstance(one, str)) if isinstance(value, list) else ()


def _text(value: object) -> str:
    return plain(value, 60) if isinstance(value, str) else ""


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**9 else 0
