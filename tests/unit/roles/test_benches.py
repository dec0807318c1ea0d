"""What people and machines are told of a measurement, and the plot they post."""

import json
from dataclasses import replace
from io import StringIO
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from syrupy.assertion import SnapshotAssertion

from roles._lib import benches, facts, plots
from sparkfleet.agent.audit.shapes import Audit, Group
from sparkfleet.agent.bench.shapes import OWN, VLLM, Load, Measured, Stream
from sparkfleet.agent.shapes import SCHEMA, Observed
from tests.unit.builders import machine, plan

AUDIT = Audit(
    "tiny-llama", "/m", "LlamaForCausalLM", "modelopt NVFP4",
    groups=(Group("MLP", "m", "modelopt NVFP4 W4A16", "U8", (1,), 1, 1, 4 * 10**9, 4 * 10**9),),
)  # fmt: skip


def load(generator: str, clients: int, each: float, late: float = 0.0) -> Load:
    streams = tuple(Stream(0.1 + 0.01 * i, 199 / (each + i), 200) for i in range(max(4, 2 * clients)))
    rounds = len(streams) / clients
    return Load(generator, clients, rounds * (0.1 + 199 / each) + late, streams)


LOADS = (
    load(VLLM, 1, 50), load(OWN, 1, 51), load(VLLM, 4, 40), load(VLLM, 16, 25), load(OWN, 16, 24),
)  # fmt: skip


def run(lock: str, spark: bool = True, **changes: Any) -> facts.Run:
    class Host:
        name = "spark-01"

    seen = machine(lab=None if spark else "lab", **changes)
    observed = Observed(SCHEMA, "", seen, (), None, None)
    host_plan = plan(lock)
    (recipe,) = host_plan.recipes
    decode = {"baseline": 55.0, "source": "s", "engine": "e", "floor": 52.0, "aggregate": {16: 400.0}}
    gpu = recipe.model_copy(
        update={"gpu": True, "recipe": recipe.recipe.model_validate(recipe.recipe.model_dump() | {"decode": decode})}
    )
    host_plan = host_plan.model_copy(update={"recipes": (gpu,)})
    found: Any = facts.Run(Host(), host_plan, None, seen=observed)  # type: ignore[arg-type]
    return found


def result(lock: str, spark: bool = True, **changes: Any) -> dict[str, Any]:
    measured = Measured("tiny-llama", 1764000000.0, LOADS, (VLLM,), AUDIT)
    found = benches.result(run(lock, spark), replace(measured, **changes))
    return found | {"sparkfleet": "0123abc", "digest": "d", "release": "vllm-d"}


def text(one: dict[str, Any]) -> str:
    out = StringIO()
    benches.show(one, Console(file=out, width=80, highlight=False))
    return out.getvalue()


def test_the_text_of_a_result(lock: str, snapshot: SnapshotAssertion) -> None:
    assert text(result(lock)) == snapshot


def test_a_machine_that_is_no_spark_is_not_held_to_a_sparks_figures(lock: str) -> None:
    found = result(lock, spark=False)
    assert (found["baseline"], found["floor"], found["ceiling"], found["aggregate"]) == (None, None, None, {})
    assert "no Spark" in text(found)
    assert "baseline" not in text(found)


def test_what_could_not_be_measured_says_why(lock: str) -> None:
    found = result(lock, loads=(), reason="port 8000: nobody is there")
    assert "not measured: port 8000: nobody is there" in text(found)


def test_what_fell_back_and_what_failed_is_said(lock: str) -> None:
    loads = (replace(load(OWN, 1, 50), failed=2),)
    said = text(result(lock, loads=loads, note="`vllm bench serve` needs the module pandas"))
    assert "2 requests failed" in said
    assert "needs the module pandas." in said
    assert "second generator" not in said


def test_generators_that_do_not_agree_are_not_passed_over(lock: str) -> None:
    assert "they do NOT agree" in text(result(lock, loads=(load(VLLM, 1, 50), load(OWN, 1, 60))))


def test_the_document_has_what_is_needed_to_do_it_again(lock: str) -> None:
    found = json.loads(json.dumps(result(lock)))
    assert found["serve"][1] == "serve" and found["machine"]["driver"] == "580.142"
    assert found["machine"]["kernel"] and found["engine"] and found["bench"]
    assert [point["concurrency"] for point in found["points"]] == [1, 4, 16]
    assert len(found["loads"]) == 5 and found["loads"][0]["streams"][0]["tokens"] == 200


def test_a_plot(lock: str, snapshot: SnapshotAssertion) -> None:
    picture = plots.plot(result(lock))
    ElementTree.fromstring(picture)
    assert picture == snapshot


def test_a_plot_of_what_is_no_spark_or_in_doubt_says_so(lock: str) -> None:
    found = result(lock)
    found["machine"]["spark"], found["agrees"] = False, False
    picture = plots.plot(found)
    assert "not a Spark" in picture and "GB10" not in picture and "a second generator disagrees" in picture


@pytest.mark.parametrize("points", [1, 2, 5])
def test_a_plot_of_any_number_of_loads_and_hostile_names(lock: str, points: int) -> None:
    loads = tuple(load(OWN, 2**i, 1000 / 2**i) for i in range(points))
    found = result(lock, loads=loads) | {"recipe": "<script>&\"'", "ceiling": None, "baseline": None}
    root = ElementTree.fromstring(plots.plot(found))
    assert not [one for one in root.iter() if one.tag.endswith("script")]


@given(st.floats(0.1, 1e6))
def test_ticks_are_few_and_reach_the_top(most: float) -> None:
    step = plots.nice_step(most)
    assert most / step <= 5.01
    assert most / step >= 1.9
