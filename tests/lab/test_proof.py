"""Models and units that are sick in each way people met: told by its symptom, and never left serving."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkfleet.catalog.recipes import RECIPES
from tests.lab.conftest import Outcome, Spark, pyinfra

pytestmark = pytest.mark.long

UNIT = "vllm-tiny-llama.service"
WENT_BACK = "The host went back to what served before, and that serves again"


@pytest.fixture(scope="module")
def spark(sparks: list[Spark]) -> Iterator[Spark]:
    """A host that serves the healthy model, and does so again after each of these."""
    spark = sparks[0]
    assert deploy(spark).status == 0
    yield spark
    assert spark.process(UNIT)["ActiveState"] == "active"
    assert deploy(spark).totals["success"] == 0, "nothing of the sick ones is left"


def deploy(spark: Spark, *data: str) -> Outcome:
    return pyinfra("deploy.py", "--limit", spark.name, *[word for one in data for word in ("--data", one)])


def own_recipe(directory: Path, more: str) -> tuple[str, str]:
    """The settings that serve the healthy model by a recipe of one's own with something more in it."""
    text = (RECIPES / "tiny-llama.yaml").read_text().replace("name: tiny-llama\ntitle", "name: tiny-own\ntitle")
    (directory / "tiny-own.yaml").write_text(text + more)
    return 'recipes=["tiny-own"]', f"recipe_directory={directory}"


def test_a_model_that_loops_fails_as_a_loop(spark: Spark) -> None:
    run = deploy(spark, 'recipes=["tiny-loops"]')
    assert run.status != 0
    assert "the answer is a loop" in run.said, run.said
    assert WENT_BACK in run.said


def test_a_parser_that_takes_the_whole_answer_is_named(spark: Spark) -> None:
    run = deploy(spark, 'recipe_overrides={"tiny-llama": {"flags": {"reasoning-parser": "deepseek_r1"}}}')
    assert run.status != 0
    assert "`content` is empty and all text is in the reasoning" in run.said, run.said
    assert "the reasoning parser deepseek_r1 took the whole answer" in run.said
    assert WENT_BACK in run.said


def test_a_line_that_no_good_start_has_is_shown(spark: Spark, tmp_path: Path) -> None:
    run = deploy(spark, *own_recipe(tmp_path, 'journal:\n  forbidden: ["enforce_eager=True"]\n'))
    assert run.status != 0
    assert "its journal has the line `" in run.said and "enforce_eager=True" in run.said, run.said
    assert WENT_BACK in run.said


def test_a_line_that_every_good_start_has_is_missed(spark: Spark, tmp_path: Path) -> None:
    run = deploy(spark, *own_recipe(tmp_path, "journal:\n  required: [\"Using 'MARLIN' Mxfp4 MoE backend\"]\n"))
    assert run.status != 0
    assert "its journal lacks a line with `Using 'MARLIN' Mxfp4 MoE backend`" in run.said, run.said


def test_decoding_below_the_floor_lists_the_causes_in_order(spark: Spark, tmp_path: Path) -> None:
    slow = "decode: {baseline: 99999, floor: 99998, source: nobody, engine: none}\n"
    run = deploy(spark, *own_recipe(tmp_path, slow))
    assert run.status != 0
    assert "tok/s, expected at least 99998" in run.said, run.said
    first, second = run.said.index("(1) the driver"), run.said.index("(2) CUDA graphs are off")
    assert first < second
    assert WENT_BACK in run.said
