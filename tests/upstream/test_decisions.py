"""What patched functions of the real files decide, asked with GPUs that are not there: only 12.1 changes."""

import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkfleet.agent.patching import apply, probe_helpers, status
from sparkfleet.agent.patching.probe_helpers import Anything, Platform, function, owner

from .test_releases import EDITED, PATHS, compiled, empty
from .verdicts import P, U
from .wheels import lay_files

__all__ = ["empty"]

pytestmark = pytest.mark.upstream

VLLM = ("0.17.1", "0.19.1", "0.20.1", "0.22.1", "0.23.0", "0.33.0")
CAPABILITIES = ((9, 0), (10, 0), (12, 0), (12, 1))
LAYERS = "vllm/model_executor/layers"

#: What a file decides for a platform.
Decision = Callable[[Platform], object]


def decided(site: Path, monkeypatch: pytest.MonkeyPatch, decide: Decision) -> dict[tuple[int, int], object]:
    monkeypatch.setattr(probe_helpers, "SITE", str(site))
    return {capability: decide(Platform(*capability)) for capability in CAPABILITIES}


def fp4_linear(platform: Platform) -> object:
    return function(
        f"{LAYERS}/quantization/utils/nvfp4_utils.py",
        "cutlass_fp4_supported",
        current_platform=platform,
        cutlass_scaled_mm_supports_fp4=lambda capability: capability >= 100,
    )()


def fp4_experts(platform: Platform) -> object:
    places = (f"{LAYERS}/fused_moe/cutlass_moe.py", f"{LAYERS}/fused_moe/experts/cutlass_moe.py")
    (place,) = (place for place in places if probe_helpers.has(place, "class CutlassExpertsFp4("))
    return function(place, "CutlassExpertsFp4._supports_current_device", current_platform=platform)()


def fp8_activations(platform: Platform) -> object:
    ask = function(
        f"{LAYERS}/quantization/utils/marlin_utils.py",
        "get_marlin_input_dtype",
        envs=types.SimpleNamespace(VLLM_MARLIN_INPUT_DTYPE="fp8"),
        current_platform=platform,
        torch=Anything(),
        get__quant_fp8_method=Anything(),
    )
    try:
        return ask() is not None
    except ValueError:
        return False


class Shape:
    """Enough of a tensor for the code around two GEMMs."""

    dtype = device = None

    def __init__(self, *sizes: int) -> None:
        self.shape = sizes
        self.ndim = len(sizes)

    def size(self, at: int | None = None) -> Any:
        return self.shape if at is None else self.shape[at]

    def view(self, *sizes: int) -> "Shape":
        return Shape(*sizes)


def marlin(intermediate: int) -> Decision:
    """What the two expert GEMMs are given for threads, with experts of that intermediate size."""

    def decide(platform: Platform) -> object:
        places = (f"{LAYERS}/fused_moe/fused_marlin_moe.py", f"{LAYERS}/fused_moe/experts/marlin_moe.py")
        (place,) = (place for place in places if probe_helpers.has(place, "def _fused_marlin_moe("))
        given: list[tuple[object, object]] = []

        def gemm(*positional: object, thread_k: int = -1, thread_n: int = -1, **named: object) -> Shape:
            given.append((thread_k, thread_n))
            return Shape(1, 1)

        run = function(
            place,
            "_fused_marlin_moe",
            ops=types.SimpleNamespace(moe_wna16_marlin_gemm=gemm),
            current_platform=platform,
            torch=Anything(),
            scalar_types=Anything(),
            ScalarType=Anything(),
            _resize_cache=lambda *a: Shape(1, 1),
            marlin_make_workspace_new=Anything(),
            marlin_moe_intermediate_size=lambda *a: intermediate,
            apply_moe_activation=Anything(),
            ApplyMoEActivationConfig=Anything(),
            MoEActivation=Anything(),
        )
        names = run.__code__.co_varnames[: run.__code__.co_argcount + run.__code__.co_kwonlyargcount]
        arguments: dict[str, Any] = dict.fromkeys(names)
        arguments.update(hidden_states=Shape(4, 512), w1=Shape(8, 32, 64), w2=Shape(8, 32, 64), topk_ids=Shape(4, 2))
        arguments.update(num_topk=2, topk_weights=Shape(4, 2), activation=types.SimpleNamespace(is_gated=True))
        arguments.update(activation_func=Anything(), workspace=Anything(), apply_router_weight_on_input=False)
        run(**{name: arguments[name] for name in names})
        return given

    return decide


@pytest.mark.parametrize("version", VLLM)
@pytest.mark.parametrize(
    ("patch", "decide", "before", "after"),
    [
        ("P4a", fp4_linear, True, False),
        ("P4b", fp4_experts, True, False),
        ("P12", fp8_activations, False, True),
        ("P2", marlin(2048), [(-1, -1), (-1, -1)], [(-1, -1), (64, 128)]),
        ("P2", marlin(1024), [(-1, -1), (-1, -1)], [(-1, -1), (-1, -1)]),
    ],
    ids=["fp4-linear", "fp4-experts", "fp8-activations", "marlin-wide", "marlin-narrow"],
)
def test_only_121_changes(
    empty: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    patch: str,
    decide: Decision,
    before: object,
    after: object,
) -> None:
    site = lay_files(empty, "vllm", version, PATHS)
    wanted = compiled(site, patch)
    (state,) = (row.state for row in status(site, wanted).rows if row.patch == patch)
    old = decided(site, monkeypatch, decide)
    assert old[12, 1] == (after if state == U else before)
    assert bool(apply(site, wanted).changed) == (state == P)
    new = decided(site, monkeypatch, decide)
    assert new[12, 1] == after
    assert {key: new[key] for key in CAPABILITIES[:3]} == {key: old[key] for key in CAPABILITIES[:3]}


@pytest.mark.parametrize("version", VLLM)
def test_probes_fail_before_and_pass_after(empty: Path, version: str) -> None:
    site = lay_files(empty, "vllm", version, PATHS)
    wanted, python = compiled(site, *EDITED), Path(sys.executable)
    states = {row.patch: row.state for row in status(site, wanted).rows}
    before = {probe.patch: probe.outcome for probe in status(site, wanted, python=python, probe=True).probes}
    assert before == {one: "passed" if states[one] == U else "failed" for one in ("P4a", "P4b", "P7", "P12")}
    report = apply(site, wanted, python=python)
    assert report.converged and {probe.outcome for probe in report.probes} == {"passed"}


@pytest.mark.parametrize("version", ["0.17.1", "0.19.1", "0.20.1", "0.22.1"])
@pytest.mark.parametrize("setting", [False, True])
@pytest.mark.parametrize("with_tools", [False, True])
def test_harmony_messages(
    empty: Path, monkeypatch: pytest.MonkeyPatch, version: str, setting: bool, with_tools: bool
) -> None:
    """Every kind of conversation, as PR 44330 renders it; those without instructions as before."""
    site = lay_files(empty, "vllm", version, PATHS)
    monkeypatch.setattr(probe_helpers, "SITE", str(site))
    envs = types.ModuleType("vllm.envs")
    envs.VLLM_GPT_OSS_HARMONY_SYSTEM_INSTRUCTIONS = setting  # type: ignore[attr-defined]
    package = types.ModuleType("vllm")
    package.envs = envs  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", package)
    monkeypatch.setitem(sys.modules, "vllm.envs", envs)

    def rendered(messages: list[Any]) -> tuple[list[tuple[str, object]], list[Any]]:
        tools = [Anything()] if with_tools else None
        request = types.SimpleNamespace(messages=messages, tools=tools, reasoning_effort="low", cache_salt=None)
        rest: list[Any] = []
        places = ("vllm/entrypoints/openai/chat_completion/serving.py", "vllm/entrypoints/serve/render/serving.py")
        (place,) = (one for one in places if probe_helpers.has(one, "def _make_request_with_harmony("))
        make = function(
            place,
            f"{owner(place, '_make_request_with_harmony')}._make_request_with_harmony",
            get_system_message=lambda **given: ("system", given.get("instructions")),
            get_developer_message=lambda **given: ("developer", given.get("instructions")),
            parse_chat_inputs_to_harmony_messages=lambda left: rest.extend(left) or [],
            render_for_completion=lambda all_: all_,
            _mt=Anything(),
            maybe_serialize_tool_calls=Anything(),
            tokens_input=lambda ids, **_: ids,
            token_inputs=lambda ids, **_: ids,
            TokensPrompt=lambda **_: _,
        )
        messages_, _ = make(types.SimpleNamespace(supports_browsing=False, supports_code_interpreter=False), request)
        return messages_, rest

    user = {"role": "user", "content": "Hello"}
    tools_only = [("system", None), *([("developer", None)] if with_tools else [])]
    told = [("system", "Be brief."), *([("developer", None)] if with_tools else [])]
    led = told if setting else [("system", None), ("developer", "Be brief.")]
    parts = [{"type": "text", "text": "Be "}, {"type": "image_url"}, "brief."]
    assert rendered([{"role": "system", "content": "Be brief."}, user]) == (
        tools_only,
        [{"role": "system", "content": "Be brief."}, user],
    )  # the fault
    assert apply(site, compiled(site, "P7")).converged
    assert rendered([{"role": "system", "content": "Be brief."}, user]) == (led, [user])
    assert rendered([{"role": "developer", "content": "Be brief."}, user]) == (led, [user])
    assert rendered([{"role": "system", "content": parts}, user]) == (led, [user])
    for left in ([user], [user, {"role": "system", "content": "late"}], [], [Anything(), user]):
        assert rendered(left) == (tools_only, left)
    assert rendered([{"role": "system", "content": None}, user]) == (tools_only, [user])


@pytest.mark.parametrize("version", VLLM)
def test_the_write_ups_line_alone_is_a_name_error(empty: Path, version: str) -> None:
    """P3 as they have it names a class that the file does not import; ours imports it."""
    site = lay_files(empty, "vllm", version, PATHS)
    path = site / "vllm/model_executor/models/qwen3_5.py"

    def imported() -> bool:
        return any(line.strip() == "SupportsQuant," for line in path.read_text().split("class ")[0].splitlines())

    assert not imported()
    assert apply(site, compiled(site, "P3")).converged
    assert imported() and "IsHybrid, SupportsQuant\n" in path.read_text()


def test_the_argument_of_the_write_ups_is_none() -> None:
    """`cutlass_scaled_mm_supports_fp4(device_id=0)`: the parameter is a capability, in the release's own wrapper."""
    from .wheels import sources

    text = (sources("vllm", "0.20.1") / "vllm/_custom_ops.py").read_text()
    assert "def cutlass_scaled_mm_supports_fp4(cuda_device_capability: int) -> bool:" in text
