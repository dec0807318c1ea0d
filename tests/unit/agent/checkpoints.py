"""Checkpoints of real shapes without their data: headers, and files as long as they say but empty (sparse)."""

import json
import math
from pathlib import Path
from typing import Any

WIDTH = {"BF16": 2, "F16": 2, "F32": 4, "F8_E4M3": 1, "U8": 1, "I8": 1, "I32": 4}

Shapes = dict[str, tuple[str, tuple[int, ...]]]


def write(directory: Path, config: dict[str, Any], tensors: Shapes, shards: int = 1) -> Path:
    """A checkpoint in ``directory``: ``tensors`` has type and shape by name."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    names = [f"model-{i:05}.safetensors" for i in range(shards)] if shards > 1 else ["model.safetensors"]
    parts: dict[str, Shapes] = {name: {} for name in names}
    for i, (name, tensor) in enumerate(tensors.items()):
        parts[names[i % shards]][name] = tensor
    for name, part in parts.items():
        _write_file(directory / name, part)
    if shards > 1:
        index = {tensor: name for name, part in parts.items() for tensor in part}
        (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    return directory


def _write_file(path: Path, tensors: Shapes) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, shape) in tensors.items():
        begin, end = end, end + WIDTH[dtype] * math.prod(shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)


def nvfp4(name: str, rows: int, columns: int, inputs: bool = False) -> Shapes:
    """A linear layer in NVFP4: two weights a byte, a scale for 16 of them, one for all."""
    found: Shapes = {
        f"{name}.weight": ("U8", (rows, columns // 2)),
        f"{name}.weight_scale": ("F8_E4M3", (rows, columns // 16)),
        f"{name}.weight_scale_2": ("F32", ()),
    }
    return found | ({f"{name}.input_scale": ("F32", ())} if inputs else {})


def qwen36(experts: int = 256) -> tuple[dict[str, Any], Shapes]:
    """Qwen3.6-35B-A3B in NVFP4 as the write-up found it: 30 of 40 layers have linear attention, left in BF16.

    Of its ``experts`` a token goes to one of 32; with fewer, the rest is as it was.
    """
    config = {
        "architectures": ["Qwen3_5MoeForConditionalGeneration"],
        "text_config": {"num_hidden_layers": 40, "num_experts": experts, "num_experts_per_tok": experts // 32},
        "quantization_config": {
            "quant_method": "modelopt",
            "quant_algo": "NVFP4",
            "ignore": ["lm_head", "*.linear_attn*", "*.mlp.gate", "*.visual*", "*embed_tokens*"],
        },
    }
    tensors: Shapes = {
        "lm_head.weight": ("BF16", (248320, 2048)),
        "model.language_model.embed_tokens.weight": ("BF16", (248320, 2048)),
        "model.language_model.norm.weight": ("BF16", (2048,)),
        "model.visual.blocks.0.attn.qkv.weight": ("BF16", (3456, 1152)),
        "mtp.fc.weight": ("BF16", (2048, 4096)),
    }
    for number in range(40):
        layer = f"model.language_model.layers.{number}"
        tensors[f"{layer}.mlp.gate.weight"] = ("BF16", (256, 2048))
        tensors[f"{layer}.input_layernorm.weight"] = ("BF16", (2048,))
        if number % 4 == 3:
            for name, rows, columns in (("q", 8192, 2048), ("k", 512, 2048), ("v", 512, 2048), ("o", 2048, 4096)):
                tensors |= nvfp4(f"{layer}.self_attn.{name}_proj", rows, columns, inputs=True)
        else:
            tensors[f"{layer}.linear_attn.in_proj_qkvz.weight"] = ("BF16", (12288, 2048))
            tensors[f"{layer}.linear_attn.out_proj.weight"] = ("BF16", (2048, 4096))
            tensors[f"{layer}.linear_attn.A_log"] = ("F32", (32,))
        for name, rows, columns in (("gate", 512, 2048), ("up", 512, 2048), ("down", 2048, 512)):
            tensors |= nvfp4(f"{layer}.mlp.shared_expert.{name}_proj", rows, columns, inputs=True)
            for expert in range(experts):
                tensors |= nvfp4(f"{layer}.mlp.experts.{expert}.{name}_proj", rows, columns, inputs=True)
    return config, tensors
