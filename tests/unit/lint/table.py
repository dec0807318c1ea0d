"""For each rule a recipe that trips exactly it, and one that nearly does and has nothing to find."""

from dataclasses import dataclass, field
from typing import Any

OLD, MID, NEW, FORK = "vllm-0.20.1", "vllm-0.23.0", "vllm-0.33.0", "vllm-0.17.1-mxfp4-fork"


@dataclass(frozen=True)
class Row:
    """``trips`` and ``near`` are changes to the clean recipe. ``said``: a part of what a person reads, remedy included.

    ``engine`` is that of both, if the near miss has no ``near_engine`` of its own.
    """

    rule: str
    said: str
    trips: dict[str, Any]
    near: dict[str, Any] = field(default_factory=dict)
    engine: str = MID
    near_engine: str = ""
    only: str | None = None


def _variable(name: str, value: str = "1") -> dict[str, Any]:
    return {"environment": {name: value}}


def _flag(name: str, value: object = True) -> dict[str, Any]:
    return {"flags": {name: value}}


def _model(repository: str, method: str, **more: Any) -> dict[str, Any]:
    return {"model": {"repository": repository, "quantization": {"method": method}, **more}}


def _both(*parts: dict[str, Any]) -> dict[str, Any]:
    return {key: value for part in parts for key, value in part.items()}


_NVFP4_DENSE = _model("somebody/it-31B-NVFP4", "modelopt")
_NVFP4_EXPERTS = _model("somebody/it-35B-A3B-NVFP4", "modelopt")
_GPT_OSS = _model("openai/gpt-oss-120b", "mxfp4")
_MARLIN = {"linear-backend": "marlin", "moe-backend": "marlin"}
_QUANTIZED = _model("somebody/it-8b-fp8", "fp8")
_MTP = {"method": "mtp", "num_speculative_tokens": 1}
_SPEED = {"decode": {"baseline": 59.0, "source": "somebody", "engine": "vLLM", "floor": 50.0}}
_FP8 = _flag("kv-cache-dtype", "fp8")
_WAIVER = {"waivers": [{"rule": "kernel-choice", "reason": "shown right on ours"}]}

ROWS = (
    Row(
        "unknown-variable",
        "Write VLLM_MARLIN_USE_ATOMIC_ADD, which it knows.",
        _variable("VLLM_MARLIN_USE_ATOMIC_AD"),
        _variable("VLLM_MARLIN_USE_ATOMIC_ADD"),
    ),
    Row("unknown-variable", "no variable that it knows is like it", _variable("VLLM_ZZZ"), {"environment": {}}),
    Row("unknown-variable", "which it knows", _variable("vllm_use_deep_gemm"), _variable("VLLM_USE_DEEP_GEMM")),
    Row(
        "variable-not-in-release",
        "Write `flags: {linear-backend: marlin}`.",
        _variable("VLLM_NVFP4_GEMM_BACKEND", "marlin"),
        _variable("VLLM_NVFP4_GEMM_BACKEND", "marlin"),
        engine=NEW,
        near_engine=OLD,
    ),
    Row(
        "variable-not-in-release",
        "Write `flags: {linear-backend: flashinfer_b12x}`.",
        _variable("VLLM_NVFP4_GEMM_BACKEND", "flashinfer-b12x"),
        _flag("linear-backend", "flashinfer_b12x"),
        engine=NEW,
    ),
    Row(
        "variable-not-in-release",
        "vLLM 0.20.1 does not have VLLM_B12X_MOE_FP4_FORCE_A16 yet; vLLM 0.32.0 has it.",
        _variable("VLLM_B12X_MOE_FP4_FORCE_A16"),
        _variable("VLLM_B12X_MOE_FP4_FORCE_A16"),
        engine=OLD,
        near_engine=NEW,
    ),
    Row(
        "fork-variable",
        "write `flags: {moe-backend: marlin}`",
        _variable("VLLM_MXFP4_BACKEND", "marlin"),
        _flag("moe-backend", "marlin"),
    ),
    Row(
        "deprecated-variable",
        "Use --linear-backend.",
        _variable("VLLM_NVFP4_GEMM_BACKEND", "marlin"),
        _variable("VLLM_NVFP4_GEMM_BACKEND", "marlin"),
        near_engine=OLD,
    ),
    Row(
        "variable-value",
        "'flashinfer_cutlass' is not a choice. Write 'flashinfer-cutlass'.",
        _variable("VLLM_NVFP4_GEMM_BACKEND", "flashinfer_cutlass"),
        _variable("VLLM_NVFP4_GEMM_BACKEND", "flashinfer-cutlass"),
        engine=OLD,
    ),
    Row(
        "variable-value",
        "'1' is taken for off. Write 'true', or '0' for off.",
        _variable("VLLM_DEBUG_LOG_API_SERVER_RESPONSE", "1"),
        _variable("VLLM_DEBUG_LOG_API_SERVER_RESPONSE", "True"),
    ),
    Row(
        "variable-value",
        "'true' is read as a number and is none.",
        _variable("VLLM_USE_DEEP_GEMM", "true"),
        _variable("VLLM_USE_DEEP_GEMM", "0"),
    ),
    Row("variable-value", "not a whole number", _variable("VLLM_PORT", "x"), _variable("VLLM_PORT", "9000")),
    Row("foreign-variable", "Did you mean OMP_", _variable("OPM_NUM_THREADS"), _variable("OMP_NUM_THREADS")),
    Row("foreign-variable", "If something reads it", _variable("ZZZ_SPEED"), _variable("NCCL_DEBUG", "WARN")),
    Row(
        "idle-variable",
        "Write TRITON_PTXAS_BLACKWELL_PATH",
        _variable("TRITON_PTXAS_PATH", "/usr/local/cuda/bin/ptxas"),
        _variable("TRITON_PTXAS_BLACKWELL_PATH", "/usr/local/cuda/bin/ptxas"),
    ),
    Row(
        "stale-tiktoken",
        "oss-harmony does not read it",
        _variable("TIKTOKEN_RS_CACHE_DIR", "/srv/vocab"),
        _variable("TIKTOKEN_RS_CACHE_DIR", "/srv/vocab"),
        engine=NEW,
        near_engine=OLD,
    ),
    Row(
        "vocabulary-elsewhere",
        "TIKTOKEN_ENCODINGS_BASE is /srv/enc",
        _variable("TIKTOKEN_ENCODINGS_BASE", "/srv/enc"),
        _both(_variable("TIKTOKEN_ENCODINGS_BASE", "/opt/sparkfleet/vocab"), {"vocabularies": ["o200k_base"]}),
        engine=OLD,
    ),
    Row("unknown-flag", "Write max-num-seqs, which it has.", _flag("max-num-seq", 4), _flag("max-num-seqs", 4)),
    Row("unknown-flag", "no flag that it has is like it", _flag("zzz", 1), {"flags": {}}),
    Row(
        "flag-not-in-release",
        "write VLLM_NVFP4_GEMM_BACKEND under `environment`",
        _flag("linear-backend", "marlin"),
        _flag("linear-backend", "marlin"),
        engine=OLD,
        near_engine=MID,
    ),
    Row("fork-flag", "is of eugr's build", _flag("mxfp4-backend", "CUTLASS"), _flag("moe-backend", "cutlass")),
    Row("flag-alias", "derived from `memory`", _flag("device-memory-utilization", 0.9), engine=NEW),
    Row(
        "flag-alias",
        "Write `enable-prefix-caching: false`.",
        _flag("no-enable-prefix-caching"),
        _flag("enable-prefix-caching", False),
    ),
    Row(
        "flag-value",
        "Write marlin.",
        _flag("moe-backend", "marlim"),
        _flag("moe-backend", "auto"),
    ),
    Row("flag-value", "no `no-` form", _flag("disable-log-stats", "no"), _flag("enable-log-requests", False)),
    Row("flag-value", "is neither true nor false", _flag("enforce-eager", "yes"), _flag("enforce-eager")),
    Row("flag-value", "not a whole number", _flag("max-num-seqs", "4k"), _flag("max-num-batched-tokens", "4k")),
    Row("flag-value", "not a number", _flag("cpu-offload-gb", "x"), _flag("cpu-offload-gb", "0.5")),
    Row(
        "flag-value",
        "It takes a mapping.",
        _flag("compilation-config", "{"),
        _flag("compilation-config", {"mode": 3}),
    ),
    Row(
        "flag-value",
        "It has no key 'num_speculative_token'. Write num_speculative_tokens.",
        _flag("speculative-config", {"method": "ngram", "num_speculative_token": 2}),
        _flag("speculative-config", {"method": "ngram", "num-speculative-tokens": 2}),
    ),
    Row(
        "flag-value",
        "It has no key 'moe_backend'",
        _flag("structured-outputs-config", {"moe_backend": "triton"}),
        _flag("hf-overrides", {"any": "key"}),
    ),
    Row("flag-value", "it takes a value", _flag("max-num-seqs"), _flag("max-num-seqs", "4")),
    Row("flag-value", "no mapping", _flag("max-num-seqs", {"a": 1}), _flag("attention-backend", "triton_attn")),
    Row(
        "tools-without-parser",
        "give tool-call-parser too",
        _flag("enable-auto-tool-choice"),
        {"flags": {"enable-auto-tool-choice": True, "tool-call-parser": "hermes"}},
    ),
    Row(
        "kernel-choice",
        "For NVFP4 linear layers, vLLM 0.23.0 takes FlashInfer's CUTLASS kernel unless told otherwise.",
        _NVFP4_DENSE,
        _both(_NVFP4_DENSE, _flag("linear-backend", "marlin")),
    ),
    Row(
        "kernel-choice",
        "For NVFP4 experts",
        _both(_NVFP4_EXPERTS, _flag("linear-backend", "flashinfer_b12x")),
        _both(_NVFP4_EXPERTS, {"flags": _MARLIN}),
        engine=NEW,
    ),
    Row(
        "kernel-choice",
        "For NVFP4 linear layers",
        _both(_NVFP4_DENSE, _flag("linear-backend", "auto")),
        _both(_NVFP4_DENSE, _variable("VLLM_NVFP4_GEMM_BACKEND", "marlin")),
        engine=NEW,
        near_engine=OLD,
    ),
    Row("kernel-choice", "For MXFP4 experts", _GPT_OSS, _GPT_OSS, engine=NEW, near_engine=OLD),
    Row(
        "kernel-choice",
        "For MXFP4 experts",
        _both(_GPT_OSS, _flag("kernel-config", {"linear_backend": "marlin"})),
        _both(_GPT_OSS, _flag("kernel-config", {"moe_backend": "marlin"})),
        engine=NEW,
    ),
    Row("kernel-choice", "For MXFP4 experts", _GPT_OSS, _both(_GPT_OSS, _flag("moe-backend", "marlin"))),
    Row(
        "b12x-not-here",
        "vLLM 0.20.1 has no b12x kernels.",
        _variable("VLLM_NVFP4_GEMM_BACKEND", "flashinfer-b12x"),
        _flag("linear-backend", "flashinfer_b12x"),
        engine=OLD,
        near_engine=NEW,
    ),
    Row(
        "b12x-not-here",
        "vLLM 0.20.1 has no b12x kernels.",
        _flag("moe-backend", "flashinfer_b12x"),
        _flag("moe-backend", "flashinfer_b12x"),
        engine=OLD,
        near_engine=MID,
    ),
    Row(
        "b12x-not-here",
        "by the variable only",
        _flag("linear-backend", "flashinfer_b12x"),
        _flag("linear-backend", "flashinfer_b12x"),
        near_engine=NEW,
    ),
    Row(
        "eager-with-floor",
        "a floor of 50 tokens a second",
        _both(_SPEED, _flag("enforce-eager")),
        _both(_SPEED, _flag("enforce-eager", False)),
    ),
    Row("memory-fraction", "0.86 of the", {"memory": {"weights": 95.0}}, {"memory": {"weights": 93.0}}),
    Row("kv-not-pinned", "memory.kv_bytes is 0", {"memory": {"kv_bytes": 0}}, {"memory": {"kv_bytes": 1}}),
    Row(
        "context-beyond-kv",
        "131072 tokens take 2.25 GiB of KV cache",
        _both(_GPT_OSS, {"context": 131072, "memory": {"kv_bytes": 2_000_000_000}}, _FP8),
        _both(_GPT_OSS, {"context": 131072, "memory": {"kv_bytes": 2_420_000_000}}, _FP8),
        engine=OLD,
    ),
    Row(
        "quantization-mismatch",
        "the checkpoint is quantised with fp8",
        _both(_QUANTIZED, _flag("quantization", "mxfp4")),
        _both(_QUANTIZED, _flag("quantization", "fp8")),
    ),
    Row(
        "quantization-mismatch",
        "which vLLM 0.23.0 leaves as they are",
        _flag("quantization", "mxfp4"),
        _flag("quantization", "mxfp4"),
        near_engine=NEW,
    ),
    Row(
        "quantization-mismatch",
        "the checkpoint is not quantised",
        _flag("quantization", "modelopt"),
        _flag("quantization", "fp8"),
    ),
    Row(
        "mtp-without-layers",
        "has no num_nextn_predict_layers",
        _both({"model": {"num_nextn_predict_layers": 0}}, _flag("speculative-config", _MTP)),
        _both({"model": {"num_nextn_predict_layers": 1}}, _flag("speculative-config", _MTP)),
    ),
    Row(
        "mtp-without-layers",
        "does not say how many",
        _flag("speculative-config", '{"method": "qwen3_next_mtp", "num_speculative_tokens": 1}'),
        _flag("speculative-config", {**_MTP, "model": "somebody/drafter"}),
    ),
    Row(
        "mtp-without-layers",
        "does not say how many",
        {"flags": {"spec-method": "mtp", "spec-tokens": 1}},
        {"flags": {"spec-method": "ngram", "spec-tokens": 1}},
        engine=NEW,
    ),
    Row(
        "parser-not-in-release",
        "vLLM 0.20.1 has no tool-call-parser 'lfm2'",
        _flag("tool-call-parser", "lfm2"),
        _flag("tool-call-parser", "lfm2"),
        engine=OLD,
        near_engine=MID,
    ),
    Row(
        "parser-not-in-release",
        "or give --reasoning-parser-plugin",
        _flag("reasoning-parser", "nano_v3"),
        {"flags": {"reasoning-parser": "nano_v3", "reasoning-parser-plugin": "/srv/nano_v3.py"}},
    ),
    Row(
        "unpinned-model",
        "`sparkfleet pin it`",
        {"model": {"revision": "unpinned"}},
        {"model": {"revision": "0" * 40}},
    ),
    Row("public-bind", "bind 0.0.0.0", {"bind": "0.0.0.0"}, {"bind": "127.0.0.2"}),
    Row(
        "secret-in-recipe",
        "environment.HF_TOKEN holds a secret.",
        _variable("HF_TOKEN", "anything"),
        _variable("HF_HOME", "/srv/hf"),
    ),
    Row(
        "secret-in-recipe",
        "holds a secret",
        _variable("VLLM_API_KEY", "abc"),
        _variable("TOKENIZERS_PARALLELISM", "false"),
    ),
    Row(
        "secret-in-recipe",
        "flags.hf-token holds a secret.",
        _flag("hf-token", "hf_" + "a" * 30),
        _flag("hf-token"),
    ),
    Row(
        "secret-in-recipe",
        "flags.model-loader-extra-config.auth.password holds a secret.",
        _flag("model-loader-extra-config", {"auth": {"password": "x"}}),
        _flag("model-loader-extra-config", {"threads": 4}),
    ),
    Row("engine-unread", "`sparkfleet lock vllm-0.17.1-mxfp4-fork", {}, {}, engine=FORK, near_engine=OLD),
    Row("engine-not-listed", "it is for: vllm-0.23.0", {}, {}, only=NEW),
    Row("engine-unknown", "there is no engine 'vllm-9'", {}, {}, engine="vllm-9", near_engine=OLD),
    Row("recipe-invalid", "did you mean 'port'?", {"prot": 1}, {}),
    Row(
        "waiver-without-effect",
        "kernel-choice finds nothing.",
        _WAIVER,
        _both(_WAIVER, _NVFP4_DENSE),
    ),
    Row(
        "waiver-without-effect",
        "There is no rule no-such-rule.",
        {"waivers": [{"rule": "no-such-rule", "reason": "x"}]},
        {"waivers": []},
    ),
)
