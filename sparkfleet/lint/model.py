"""Model and flags together: what the checkpoint cannot do, and what a release has no code for."""

import json
from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from sparkfleet.lint.case import Case
from sparkfleet.lint.findings import Trouble
from sparkfleet.lint.registry import rule

#: Other names under which a checkpoint's method may be asked for: those that `_verify_quantization` turns into it.
_SAME: Mapping[str, set[str]] = {
    "gptq": {"gptq_marlin", "auto_gptq", "moe_wna16"},
    "awq": {"awq_marlin", "auto_awq", "cpu_awq", "moe_wna16"},
    "modelopt": {"modelopt_fp4", "modelopt_mixed", "modelopt_mxfp8"},
    "mxfp4": {"gpt_oss_mxfp4"},
    "auto-round": {"inc"},
    "fp8": {"deepseek_v4_fp8"},
}
_ANY = "humming"

#: Methods that need a checkpoint quantised for them: they do nothing to 16-bit weights, or refuse them.
_OF_CHECKPOINTS = {
    *(
        "gptq",
        "gptq_marlin",
        "auto_gptq",
        "awq",
        "awq_marlin",
        "auto_awq",
        "cpu_awq",
        "moe_wna16",
        "compressed-tensors",
    ),
    *(
        "modelopt",
        "modelopt_fp4",
        "modelopt_mixed",
        "modelopt_mxfp8",
        "gpt_oss_mxfp4",
        "fbgemm_fp8",
        "fp_quant",
        "quark",
    ),
    *("deepseek_v4_fp8", "auto-round"),
}

#: From here on `mxfp4` means to quantise 16-bit weights while they are loaded (`_ONLINE_SHORTHANDS`).
_ONLINE_MXFP4 = ">=0.28.0.dev0"


@rule("quantization-mismatch", "error")
def quantization_mismatch(case: Case) -> Iterator[Trouble]:
    """`quantization` that is not the checkpoint's own method.

    Why: vLLM ends the start with "does not match the quantization method"; asked to make MXFP4 of 16-bit weights, a
    release before 0.28 leaves them as they are and says nothing.

    Source: `_verify_quantization` in `vllm/config/model.py` of 0.20.1 to 0.33.0; `_ONLINE_SHORTHANDS` in
    `vllm/config/quantization.py` of 0.28.0.
    """
    asked = case.serving.flags.get("quantization")
    own = case.recipe.model.quantization.method if case.recipe.model.quantization else None
    if not isinstance(asked, str) or own is None or asked in (own, _ANY) or asked in _SAME.get(own, set()):
        return
    keys = ("flags", "quantization")
    if own != "none":
        what = f"--quantization {asked}, but the checkpoint is quantised with {own}."
        yield Trouble(keys, what, "take it out: vLLM reads the method from the checkpoint.")
    elif asked in _OF_CHECKPOINTS:
        what = f"--quantization {asked}, but the checkpoint is not quantised, and {asked} does not quantise one."
        yield Trouble(keys, what, "take it out, or take a checkpoint that is quantised so.")
    elif asked == "mxfp4" and case.version and not case.within(_ONLINE_MXFP4):
        what = f"--quantization mxfp4, but the checkpoint has 16-bit weights, which {case.title} leaves as they are."
        yield Trouble(keys, what, "take vLLM 0.28 or later, the MXFP4 fork, or an FP8 checkpoint.")


@rule("mtp-without-layers", "error")
def mtp_without_layers(case: Case) -> Iterator[Trouble]:
    """Speculative decoding with MTP on a checkpoint that has no layers for it, or of which nobody has looked.

    Why: five of five attempts failed (`Unsupported speculative method: 'mtp'`, a BF16 drafter that the NVFP4 kernel
    refuses, a KV budget of 112 GB that froze the machine); without the layers there is nothing to draft with.

    Source: the write-up's row S10; `num_nextn_predict_layers` (`mtp_num_hidden_layers` for Qwen3.5) in
    `vllm/config/speculative.py` of 0.17.1 to 0.33.0.
    """
    flags = case.serving.flags
    config = _mapping(flags.get("speculative-config"))
    method = flags.get("spec-method") or config.get("method")  # 0.33 has flags of their own for both
    if "mtp" not in str(method) or flags.get("spec-model") or config.get("model"):
        return
    keys = ("flags", "spec-method" if "spec-method" in flags else "speculative-config")
    layers = case.recipe.model.num_nextn_predict_layers
    if layers == 0:
        yield Trouble(
            keys, "the checkpoint has no num_nextn_predict_layers, so MTP has nothing to draft with.", _NO_MTP
        )
    elif layers is None:
        what = "MTP is asked for, and the recipe does not say how many num_nextn_predict_layers the checkpoint has."
        yield Trouble(keys, what, f"look into its config.json and write model.num_nextn_predict_layers, or {_NO_MTP}")


def _mapping(value: object) -> Mapping[str, object]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


_NO_MTP = "take speculative decoding out, or name a draft model for it."


@rule("parser-not-in-release", "error")
def parser_not_in_release(case: Case) -> Iterator[Trouble]:
    """A reasoning or tool parser that this release does not register, and no plugin that could bring it.

    Why: the start ends with `KeyError: invalid tool call parser`, or every answer has `content: null`.

    Source: `_REASONING_PARSERS_TO_REGISTER` and `_TOOL_PARSERS_TO_REGISTER` of the pinned wheel.
    """
    if case.known is None:
        return
    kinds = (
        ("reasoning-parser", "reasoning-parser-plugin", case.known.parsers.reasoning),
        ("tool-call-parser", "tool-parser-plugin", case.known.parsers.tool),
    )
    for flag, plugin, names in kinds:
        asked = case.serving.flags.get(flag)
        if isinstance(asked, str) and asked and asked not in names and plugin not in case.serving.flags:
            near = get_close_matches(asked, names, n=1)
            remedy = f"write {near[0]}." if near else f"write one of {', '.join(names)}, or give --{plugin}."
            yield Trouble(("flags", flag), f"{case.title} has no {flag} {asked!r}.", remedy)


@rule("unpinned-model", "warning")
def unpinned_model(case: Case) -> Iterator[Trouble]:
    """A model whose revision is not pinned and whose files nobody has listed.

    Why: a repository changes under its name: one NVFP4 checkpoint was quantised anew in place and stopped loading.

    Source: unsloth/Qwen3.6-35B-A3B-NVFP4, 2026-07-10, as the recipe of others that carries the warning says.
    """
    model = case.recipe.model
    if not model.pinned:
        remedy = f"`sparkfleet pin {case.recipe.name}` writes the commit that is current."
        yield Trouble(("model", "revision"), f"{model.repository} is taken as it is on the day.", remedy)
