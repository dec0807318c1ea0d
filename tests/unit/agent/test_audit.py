"""What a checkpoint consists of, from headers of real shapes; and whatever else a file may hold."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkfleet.agent import wire
from sparkfleet.agent.audit import checkpoint, kinds, quantized, tally
from sparkfleet.agent.audit.checkpoint import Checkpoint, Tensor
from sparkfleet.agent.audit.shapes import Audit, AuditQuestion, Audits, Group, Model
from sparkfleet.agent.errors import HostError
from tests.unit.agent import checkpoints
from tests.unit.agent.checkpoints import nvfp4

MIB = 1024**2


def audited(directory: Path, config: dict[str, Any], tensors: checkpoints.Shapes, shards: int = 1) -> Audit:
    path = str(checkpoints.write(directory, config, tensors, shards))
    (found,) = tally.audit(AuditQuestion((Model("r", path, "/nowhere"),))).audits
    assert not found.trouble, found.trouble
    return found


def named(found: Audit, name: str) -> Group:
    (group,) = (group for group in found.groups if group.module.endswith(name))
    return group


@pytest.fixture(scope="module")
def qwen36(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    return audited(tmp_path_factory.mktemp("qwen36"), *checkpoints.qwen36(), shards=4)


def test_the_arithmetic_of_the_write_up_on_qwen36_nvfp4(qwen36: Audit) -> None:
    found = qwen36
    assert (found.architecture, found.method) == ("Qwen3_5MoeForConditionalGeneration", "modelopt NVFP4")
    assert (found.experts, found.active) == (256, 8)
    # 1.44 GB, 480 MB, 40 MB and 970 MB in the write-up, which means MiB
    leftovers = {"in_proj_qkvz": (30, 1440), "out_proj": (30, 480), "mlp.gate": (40, 40), "lm_head": (1, 970)}
    for name, (layers, mib) in leftovers.items():
        group = named(found, name)
        assert (group.layers, group.size, group.method) == (layers, mib * MIB, "none"), name
        assert group.read == group.size and group.excluded
    wide = sum(group.read for group in found.groups if group.method == "none")
    assert wide / 1024**3 == pytest.approx(2.9, abs=0.05)
    # 3 billion active weights at 4.5 bits are its 1.7 GB; then it says about 60 tokens a second
    assert 273e9 / (wide + 3e9 * 4.5 / 8) == pytest.approx(60, abs=4)
    experts = [group for group in found.groups if group.kind == kinds.EXPERTS]
    assert sum(group.size for group in experts) == pytest.approx(40 * 256 * 3 * 2048 * 512 * 4.5 / 8, rel=1e-4)
    assert sum(group.read for group in experts) * 32 == pytest.approx(sum(group.size for group in experts))
    assert {group.method for group in experts} == {"modelopt NVFP4 W4A4"}
    # what the weights really are: of 3 billion active ones, 1.6 are in 16 bits
    assert 273e9 / found.read == pytest.approx(71, abs=1)


def test_what_is_read_for_a_token(qwen36: Audit) -> None:
    found = qwen36
    assert named(found, "embed_tokens").read == 2 * 2048  # one row
    assert named(found, "visual.blocks.*.attn.qkv").read == 0
    assert (named(found, "mtp.fc").kind, named(found, "mtp.fc").read) == (kinds.DRAFT, 0)


def test_an_embedding_that_is_the_head_too_is_read_whole(tmp_path: Path) -> None:
    tensors: checkpoints.Shapes = {
        "model.embed_tokens.weight": ("BF16", (1000, 64)),
        "model.embed_tokens_per_layer.weight": ("BF16", (1000, 32)),
    }
    found = audited(tmp_path, {}, tensors)
    assert named(found, "embed_tokens").read == 2 * 1000 * 64
    assert named(found, "per_layer").read == 2 * 32


def test_gpt_oss(tmp_path: Path) -> None:
    layer = "model.layers.0"
    tensors: checkpoints.Shapes = {
        f"{layer}.mlp.experts.gate_up_proj_blocks": ("U8", (128, 5760, 90, 16)),
        f"{layer}.mlp.experts.gate_up_proj_scales": ("U8", (128, 5760, 90)),
        f"{layer}.mlp.experts.gate_up_proj_bias": ("BF16", (128, 5760)),
        f"{layer}.mlp.router.weight": ("BF16", (128, 2880)),
        f"{layer}.self_attn.sinks": ("BF16", (64,)),
    }
    config = {
        "num_local_experts": 128,
        "num_experts_per_tok": 4,
        "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.mlp.router"]},
    }
    found = audited(tmp_path, config, tensors)
    group = named(found, "experts.gate_up_proj")
    assert (group.kind, group.method, group.stored) == (kinds.EXPERTS, "MXFP4", "U8 + BF16")
    assert group.shape == (128, 5760, 90, 16) and group.tensors == 3
    assert group.read * 32 == group.size
    assert (named(found, "router").kind, named(found, "router").excluded) == (kinds.ROUTER, True)
    assert named(found, "sinks").kind == kinds.ATTENTION


def grouped(activations: dict[str, int] | None) -> dict[str, Any]:
    group = {"weights": {"num_bits": 4}, "input_activations": activations}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}}


METHODS: list[tuple[dict[str, Any], checkpoints.Shapes, str]] = [
    ({"quant_method": "fp8", "weight_block_size": [128, 128]},
     {"weight": ("F8_E4M3", (64, 64)), "weight_scale_inv": ("BF16", (1, 1))}, "FP8 block"),
    ({"quant_method": "compressed-tensors"},
     {"weight": ("F8_E4M3", (64, 64)), "weight_scale": ("BF16", (64, 1))}, "compressed-tensors FP8"),
    (grouped(None),
     {"weight_packed": ("U8", (64, 32)), "weight_scale": ("F8_E4M3", (64, 4)), "weight_global_scale": ("F32", (1,))},
     "compressed-tensors NVFP4 W4A16"),
    (grouped({"num_bits": 4}),
     {"weight_packed": ("U8", (64, 32)), "weight_scale": ("F8_E4M3", (64, 4))}, "compressed-tensors NVFP4 W4A4"),
    ({"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4"},
     {"weight": ("U8", (64, 32)), "weight_scale": ("F8_E4M3", (64, 4)), "input_scale": ("F32", ())},
     "modelopt NVFP4 W4A16"),
    ({"quant_method": "auto-round", "bits": 4, "group_size": 128},
     {"qweight": ("I32", (8, 64)), "qzeros": ("I32", (1, 8)), "scales": ("F16", (1, 64))}, "auto-round INT4"),
    ({"quant_method": "gptq", "bits": 8}, {"qweight": ("I32", (16, 64)), "scales": ("F16", (1, 64))}, "gptq INT8"),
    ({"quant_method": "awq", "w_bit": 4}, {"qweight": ("I32", (8, 64)), "scales": ("F16", (1, 64))}, "awq INT4"),
    ({}, {"weight": ("U8", (64, 64))}, "unknown (U8)"),
]  # fmt: skip


@pytest.mark.parametrize(("config", "parts", "expected"), METHODS, ids=[one[2] for one in METHODS])
def test_how_a_layer_is_quantised(
    tmp_path: Path, config: dict[str, Any], parts: checkpoints.Shapes, expected: str
) -> None:
    tensors = {f"model.layers.0.mlp.up_proj.{part}": tensor for part, tensor in parts.items()}
    (group,) = audited(tmp_path, {"quantization_config": config}, tensors).groups
    assert (group.method, group.kind, group.tensors) == (expected, kinds.MLP, len(parts))


def test_what_modelopt_writes_beside_the_configuration_counts(tmp_path: Path) -> None:
    said = {"quantization": {"quant_algo": "NVFP4", "exclude_modules": ["lm_head"]}}
    tmp_path.joinpath("hf_quant_config.json").write_text(json.dumps(said))
    found = audited(tmp_path, {}, {"lm_head.weight": ("BF16", (8, 8)), **nvfp4("model.layers.0.mlp.up_proj", 64, 64)})
    assert found.method == "modelopt NVFP4"
    assert named(found, "lm_head").excluded


NAMES = {
    "model.layers.*.self_attn.q_norm": kinds.NORM,
    "model.layers.*.mlp.shared_expert_gate": kinds.ROUTER,
    "model.layers.*.mlp.gate.e_score_correction_bias": kinds.ROUTER,
    "model.layers.*.mlp.gate_proj": kinds.MLP,
    "backbone.layers.*.mixer.in_proj": kinds.LINEAR,
    "backbone.layers.*.mixer.gate": kinds.ROUTER,
    "backbone.layers.*.mixer.experts.*.up_proj": kinds.EXPERTS,
    "backbone.layers.*.mixer.shared_experts.up_proj": kinds.SHARED,
    "backbone.layers.*.mixer.q_proj": kinds.ATTENTION,
    "backbone.layers.*.mixer.norm": kinds.NORM,
    "backbone.embeddings": kinds.EMBEDDING,
    "backbone.norm_f": kinds.NORM,
    "model.layers.*.linear_attn.norm": kinds.NORM,
    "model.layers.*.linear_attn.conv1d": kinds.LINEAR,
    "model.language_model.layers.*.layer_scalar": kinds.NORM,
    "model.vision_tower.encoder.layers.*.mlp.up_proj": kinds.SENSES,
    "model.layers.*.router.proj": kinds.ROUTER,
    "transformer.something": kinds.UNKNOWN,
}


@pytest.mark.parametrize("name", NAMES)
def test_what_a_layer_is_for(name: str) -> None:
    assert kinds.kind(name) == NAMES[name]


@pytest.mark.parametrize(
    ("pattern", "module", "expected"),
    [
        ("lm_head", "lm_head", True),
        ("model.layers.0.mlp.gate", "model.language_model.layers.0.mlp.gate", True),
        ("mlp.gate", "model.layers.3.mlp.gate", True),
        ("mlp.gate", "model.layers.3.mlp.gate_proj", False),
        ("model.layers.0", "model.layers.0.mlp.up_proj", True),
        ("re:.*mlp.gate$", "model.layers.3.mlp.gate", True),
        ("re:.*mlp.gate$", "model.layers.3.mlp.gate_up", False),
        (r"re:.*linear_attn\..*", "model.layers.3.linear_attn.in_proj", True),
        ("re:(a|b)+$", "aaaa", False),
    ],
)
def test_what_a_configuration_leaves_out(pattern: str, module: str, expected: bool) -> None:
    said = quantized.scheme({"quantization_config": {"quant_method": "x", "ignore": [pattern]}})
    assert said.excludes(module) is expected
    assert bool(said.notes) is pattern.startswith("re:(")


def test_a_layer_beyond_the_last_is_a_draft_model(tmp_path: Path) -> None:
    tensors: checkpoints.Shapes = {f"model.layers.{i}.mlp.up_proj.weight": ("BF16", (8, 8)) for i in (0, 1, 2)}
    found = audited(tmp_path, {"num_hidden_layers": 2}, tensors)
    assert {group.kind: group.read for group in found.groups} == {kinds.MLP: 256, kinds.DRAFT: 0}


def test_a_model_that_is_not_laid_down_is_read_where_it_comes_from(tmp_path: Path) -> None:
    path = checkpoints.write(tmp_path / "there", {}, {"lm_head.weight": ("BF16", (8, 8))})
    (found,) = tally.audit(AuditQuestion((Model("r", str(tmp_path / "absent"), str(path)),))).audits
    assert (found.path, found.size, found.trouble) == (str(path), 128, "")


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    path = checkpoints.write(tmp_path, {}, {"lm_head.weight": ("BF16", (8, 8))})
    whole = (path / "model.safetensors").read_bytes()
    (path / "model.safetensors").write_bytes(whole[:-1])
    asked = AuditQuestion((Model("r", str(path), ""), Model("s", str(tmp_path / "absent"), "")))
    cut, absent = tally.audit(asked).audits
    assert "model.safetensors: cut off" in cut.trouble
    assert "absent: cannot be read" in absent.trouble


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=20), inner, max_size=4),
    max_leaves=20,
)
KEYS = st.sampled_from(
    ["quant_method", "quant_algo", "ignore", "config_groups", "bits", "weight_block_size", "extra_config", "dynamic",
     "weights", "modules_to_not_convert", "group_size", "format"]
)  # fmt: skip
CONFIG = st.dictionaries(
    st.sampled_from(["quantization_config", "text_config", "architectures", "num_experts", "num_experts_per_tok"]),
    JSON | st.dictionaries(KEYS, JSON | st.dictionaries(KEYS, JSON), max_size=6),
)
PART = st.sampled_from(["weight", "weight_scale", "bias", "qweight", "proj_blocks", "", "scales", "k_scale"])
NAME = st.builds(lambda *parts: ".".join(parts), st.text(max_size=12), st.sampled_from(["layers.3", "mlp", ""]), PART)
TENSORS = st.lists(
    st.builds(
        Tensor,
        NAME,
        st.sampled_from([*checkpoints.WIDTH, "F8_E8M0", "?"]),
        st.lists(st.integers(0, 5000), max_size=3).map(tuple),
        st.integers(0, 10**12),
    ),
    max_size=20,
    unique_by=lambda one: one.name,
)


@given(CONFIG, TENSORS)
def test_every_byte_is_in_some_group_whatever_the_checkpoint_says(
    config: dict[str, Any], tensors: list[Tensor]
) -> None:
    found = tally.count("r", "/p", Checkpoint(config, tuple(tensors)))
    assert found.size == sum(tensor.size for tensor in tensors)
    assert sum(group.tensors for group in found.groups) == len(tensors)
    assert all(0 <= group.read <= group.size for group in found.groups)
    assert wire.decode(Audits, wire.encode(Audits((found,)))) == Audits((found,))


@given(st.binary(max_size=200) | JSON.map(lambda one: json.dumps(one).encode()), st.integers(0, 2**64 - 1) | st.none())
def test_any_bytes_are_a_header_or_refused(tmp_path_factory: Any, content: bytes, length: int | None) -> None:
    path = tmp_path_factory.mktemp("h") / "x.safetensors"
    path.write_bytes((len(content) if length is None else length).to_bytes(8, "little") + content)
    try:
        found = checkpoint.tensors_of(path)
    except HostError as error:
        assert "cut off, or no safetensors file" in str(error)
    else:
        assert all(tensor.size == 0 for tensor in found)  # nothing follows that header


def test_more_groups_than_anyone_reads_are_counted_as_one() -> None:
    tensors = tuple(Tensor(f"a{i}x.weight", "BF16", (8,), 16) for i in range(1000))
    found = tally.count("r", "/p", Checkpoint({}, tensors))
    assert len(found.groups) == 401 and found.size == 16_000 and found.groups[-1].module == "600 more"


def test_what_a_name_would_do_to_a_terminal_is_not_kept(tmp_path: Path) -> None:
    found = audited(tmp_path, {"architectures": ["A\x1b"]}, {"layers.0.\x1b[31m\n.weight": ("BF16", (8,))})
    assert (found.architecture, found.groups[0].module) == ("A?", "layers.*.?[31m?")
