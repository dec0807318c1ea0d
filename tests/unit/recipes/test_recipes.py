"""Every recipe of the catalog on every engine it is for: known to that engine, planned, or refused with the remedy."""

import json
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from sparkfleet.catalog import engines, recipes
from sparkfleet.catalog.architectures import of_repository
from sparkfleet.catalog.recipes import KnownBad, Recipe, Serving
from sparkfleet.errors import UserError
from sparkfleet.memory.kv import kv_need
from sparkfleet.patchset import pinned
from sparkfleet.plan import plan_host
from tests.unit.builders import DATA

ENTRIES = {name: recipes.entry(path) for name, path in recipes.paths().items()}
GOOD = {name: one for name, one in ENTRIES.items() if isinstance(one, Recipe)}
BAD = {name: one for name, one in ENTRIES.items() if isinstance(one, KnownBad)}
REAL = {name: one for name, one in GOOD.items() if one.model.repository}
PAIRS = [(name, engine) for name, one in GOOD.items() for engine in one.engine_names]

#: The systems of the write-ups, by what serves or refuses them.
SYSTEMS = {
    "gemma-4-26b",
    "gemma-4-31b",
    "gpt-oss-120b",
    "nemotron-3-nano-w4a16",
    "nemotron-3-nano-w4a16-mtp",
    "nemotron-3-nano-w4a4",
    "qwen3.5-122b-int4",
    "qwen3.5-122b-nvfp4",
    "qwen3.5-35b-fp8",
    "qwen3.5-35b-mxfp4-online",
    "qwen3.6-35b-fp8",
    "qwen3.6-35b-nvfp4",
    "qwen3.6-35b-nvfp4-sglang",
}


def data(name: str, **more: Any) -> dict[str, Any]:
    return {**DATA, "recipes": [name], **more}


def test_every_system_of_the_write_ups_is_there() -> None:
    assert ENTRIES.keys() >= SYSTEMS
    assert {name for name, one in REAL.items() if one.profile == "serving"} == {"nemotron-3-nano-w4a4"}


@pytest.mark.parametrize(("name", "engine"), PAIRS)
def test_an_engine_knows_every_flag_and_variable(name: str, engine: str) -> None:
    known = engines.engine(engine)
    serving = GOOD[name].on(engine)
    if not known.knowledge.exists():
        assert known.sources  # nobody can know before the user has supplied it
        return
    knowledge = json.loads(known.knowledge.read_text(encoding="utf-8"))
    for flag, value in serving.flags.items():
        _allowed(knowledge["flags"].get(f"--{flag}"), value, flag)
    for variable, value in serving.environment.items():
        if variable.startswith("VLLM_"):
            _allowed(knowledge["environment"].get(variable), value, variable)
    for flag, kind in (("reasoning-parser", "reasoning"), ("tool-call-parser", "tool")):
        assert serving.flags.get(flag) in (None, *knowledge["parsers"][kind])


def _allowed(known: dict[str, Any] | None, value: object, what: str) -> None:
    assert known is not None, what
    if "choices" in known and not known.get("open"):
        assert str(value).lower() in {str(one).lower() for one in known["choices"]}, what


@pytest.mark.parametrize(("name", "engine"), [(n, e) for n, e in PAIRS if n in REAL])
def test_it_is_planned_on_each_engine_with_a_lock_and_refused_on_the_others(name: str, engine: str) -> None:
    known = engines.engine(engine)
    if not known.lock.exists():
        with pytest.raises(UserError, match=f"Make it with `sparkfleet lock {engine}"):
            plan_host("spark-1", data(name, engine=engine))
        return
    plan = plan_host("spark-1", data(name, engine=engine))
    (planned,) = plan.recipes
    assert f"--served-model-name={GOOD[name].served_as}" in planned.command
    assert f"--max-model-len={GOOD[name].context}" in planned.command
    assert f"--kv-cache-memory-bytes={GOOD[name].memory.kv_bytes}" in planned.command
    assert plan.releases[0].engine == engine


@pytest.mark.parametrize("name", REAL)
def test_a_recipe_says_what_a_person_has_to_know(name: str) -> None:
    one = REAL[name]
    serving = one.on(one.engine_names[0])
    assert serving.reason, "why this engine first"
    assert one.decode and one.decode.floor
    assert one.model.pinned or one.model.source, "where the figure of its size is from"
    for kernel in ("moe-backend", "linear-backend", "VLLM_NVFP4_GEMM_BACKEND"):
        for engine in one.engine_names:
            on = one.on(engine)
            assert kernel not in {**on.flags, **on.environment} or kernel in on.why
    assert one.memory.overhead >= 5.4, "the least that was measured on a Spark"


#: Architectures that vLLM itself has no configuration class for, and the first transformers that does (read in 0.23.0
#: and 0.33.0: gemma4_mm.py imports transformers.models.gemma4).
TRANSFORMERS = {"Gemma4ForConditionalGeneration": "5.5.1"}


@pytest.mark.parametrize(("name", "engine"), [(n, e) for n, e in PAIRS if n in REAL])
def test_the_closure_of_an_engine_knows_the_architecture(name: str, engine: str) -> None:
    lock = engines.engine(engine).lock
    needs = TRANSFORMERS.get(REAL[name].model.architecture or "")
    if needs and lock.exists():
        assert Version(pinned(lock.read_text(encoding="utf-8"))["transformers"]) >= Version(needs)


@pytest.mark.parametrize("name", REAL)
def test_the_pinned_cache_holds_one_conversation_of_full_length(name: str) -> None:
    one = REAL[name]
    for engine in one.engine_names:
        need = kv_need(of_repository(one.model.repository), one.context, _text(one.on(engine), "kv-cache-dtype"))
        assert need.bytes is None or need.bytes <= one.memory.kv_bytes


def _text(serving: Serving, flag: str) -> str:
    return str(serving.flags.get(flag, "auto"))


@pytest.mark.parametrize("name", REAL)
def test_it_fits_a_spark_of_its_own(name: str) -> None:
    assert REAL[name].memory.total + 8 <= 121.7


def test_gpt_oss_and_the_online_quantisation_do_not_fit_together() -> None:
    both = REAL["gpt-oss-120b"].memory.total + REAL["qwen3.5-35b-mxfp4-online"].memory.total
    assert both + 8 > 121.7


@pytest.mark.parametrize("name", BAD)
def test_what_is_known_to_be_bad_is_refused_with_the_alternative(name: str) -> None:
    with pytest.raises(UserError) as error:
        plan_host("spark-1", data(name))
    assert f"recipe {name} is known not to work: " in str(error.value)
    assert f"Take {BAD[name].known_bad.instead}." in str(error.value)
    assert BAD[name].known_bad.instead in GOOD


def test_variables_of_the_fork_alone_are_for_the_fork_alone() -> None:
    for name, engine in PAIRS:
        assert ("VLLM_MXFP4_BACKEND" in GOOD[name].on(engine).environment) <= engine.endswith("-fork")


def test_what_an_engine_says_wins_and_null_takes_away(tmp_path: Path) -> None:
    one = GOOD["tiny-llama"].model_dump()
    one["engines"] = [{"name": "vllm-9", "flags": {"seed": 1, "max-num-seqs": None}, "environment": {"A": "b"}}]
    serving = Recipe.model_validate(one).on("vllm-9")
    assert serving.flags["seed"] == 1
    assert "max-num-seqs" not in serving.flags
    assert serving.environment["A"] == "b"
    with pytest.raises(UserError, match="recipe tiny-llama is not for engine vllm-8; it is for: vllm-9"):
        Recipe.model_validate(one).on("vllm-8")
