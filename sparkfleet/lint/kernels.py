"""Which kernel does the work: the choice that makes the difference between text and ``!!!!`` on a 12.1."""

import re
from collections.abc import Iterator

from sparkfleet.catalog.recipes import Model
from sparkfleet.lint.case import Case
from sparkfleet.lint.data import Setting, Taken, kernels
from sparkfleet.lint.findings import Keys, Trouble
from sparkfleet.lint.registry import rule

_UNSAID = {"", "auto", "0", "false", "none"}

#: Total and active parameters in a name (35B-A3B): only a mixture of experts has both.
_ACTIVE = re.compile(r"\d+b-a\d+(\.\d+)?b", re.IGNORECASE)


def weight_format(model: Model) -> str:
    """Of its weights, as far as the recipe says: ``nvfp4`` by the checkpoint's name, ``mxfp4`` by its method."""
    named = f"{model.repository or ''} {model.name}".lower()
    if "nvfp4" in named:
        return "nvfp4"
    method = model.quantization.method if model.quantization else ""
    return "mxfp4" if "mxfp4" in method or (not method and "gpt-oss" in named) else ""


def has_experts(model: Model) -> bool:
    """Whether its name or architecture says that it is a mixture of experts."""
    named = f"{model.repository or ''} {model.name}"
    kind = (model.architecture or "").lower()
    return bool(_ACTIVE.search(named)) or "moe" in kind or "gptoss" in kind or "gpt-oss" in named.lower()


@rule("kernel-choice", "error")
def kernel_choice(case: Case) -> Iterator[Trouble]:
    """NVFP4 or MXFP4 layers whose kernel the recipe leaves to the release, where it takes one that was wrong on a 12.1.

    Why: Near-zero logits, the same value across a whole row, repetition loops: the model loads, is fast and says `!!!`.

    Source: `catalog/lint/kernels.yaml`: the orders of candidates in the wheels, by range of releases.
    """
    if not case.engine.gpu:
        return
    for choice in kernels():
        wanted = choice.format == weight_format(case.recipe.model)
        if not wanted or (choice.experts and not has_experts(case.recipe.model)):
            continue
        for taken in choice.cases:
            if case.within(taken.versions) and not _chosen(case, taken):
                keys = next(filter(None, (_key(case, one) for one in taken.accepted)), ("flags",))
                what = f"for {choice.layers}, {case.title} takes {taken.takes} unless told otherwise."
                yield Trouble(keys, what, f"write {taken.remedy}.", f"{taken.why} ({taken.source}).")


def _chosen(case: Case, taken: Taken) -> bool:
    return any(_says(case, one) for one in taken.accepted)


def _says(case: Case, setting: Setting) -> bool:
    value = _value(case, setting)
    return value not in _UNSAID and (not setting.values or value in setting.values)


def _value(case: Case, setting: Setting) -> str:
    """What the recipe gives a setting, in the form in which choices are compared; empty when it does not give it."""
    given: object = case.serving.environment.get(setting.variable)
    if setting.flag:
        config = case.serving.flags.get("kernel-config")  # says the same in a mapping
        inside = config.get(setting.flag.replace("-", "_")) if isinstance(config, dict) else None
        given = case.serving.flags.get(setting.flag, inside)
    return "" if given is None else str(given).lower().replace("-", "_")


def _key(case: Case, setting: Setting) -> Keys | None:
    """The place of a setting that the recipe gives."""
    if setting.flag:
        return ("flags", setting.flag) if setting.flag in case.serving.flags else None
    return ("environment", setting.variable) if setting.variable in case.serving.environment else None


@rule("b12x-not-here", "error", instead=("flag-value", "variable-value", "flag-not-in-release"))
def b12x_not_here(case: Case) -> Iterator[Trouble]:
    """FlashInfer's b12x kernels asked of a release that does not have them, or in words that it does not understand.

    Why: vLLM has them from 0.22 on (PR 40082). Before, the start ends with a ValueError; the write-up that used them on
    0.20.1 had patched seven files. For linear layers 0.22 and 0.23 know the variable only, 0.24 and up the flag only.

    Source: `vllm/envs.py` and `vllm/config/kernel.py` of 0.20.1 to 0.24.0 and 0.33.0 (read in the wheels).
    """
    variable, linear, experts = "VLLM_NVFP4_GEMM_BACKEND", "linear-backend", "moe-backend"
    flags = {name for name in (linear, experts) if "b12x" in str(case.serving.flags.get(name, ""))}
    in_variable = "b12x" in case.serving.environment.get(variable, "")
    if case.within("<0.22.0.dev0"):
        remedy = "take vLLM 0.22 or later, or Marlin."
        for keys in [("flags", one) for one in sorted(flags)] + [("environment", variable)] * in_variable:
            yield Trouble(keys, f"{case.title} has no b12x kernels.", remedy)
    elif case.within("<0.24.0.dev0") and linear in flags:
        remedy = f"write `environment: {{{variable}: flashinfer-b12x}}`, or take vLLM 0.24 or later."
        yield Trouble(("flags", linear), f"{case.title} takes b12x for linear layers by the variable only.", remedy)


@rule("eager-with-floor", "error")
def eager_with_floor(case: Case) -> Iterator[Trouble]:
    """`enforce-eager` in a recipe that promises a speed.

    Why: without CUDA graphs every kernel is launched from Python: gpt-oss-120b fell from 59 to 26 tokens a second.

    Source: the write-up's row S2.
    """
    floor = case.recipe.decode.floor if case.recipe.decode else None
    if floor and case.engine.gpu and case.serving.flags.get("enforce-eager") is True:
        what = f"enforce-eager, and a floor of {floor:g} tokens a second."
        yield Trouble(("flags", "enforce-eager"), what, "take enforce-eager out, or decode.floor.")
