"""``sparkfleet patches`` as a person and a script see it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sparkfleet.cli import main

from .sites import install, tree

NVFP4 = "vllm/model_executor/layers/quantization/utils/nvfp4_utils.py"
TEXT = """def cutlass_fp4_supported() -> bool:
    if not current_platform.is_cuda():
        return False
    capability_tuple = current_platform.get_device_capability()
    capability = -1 if capability_tuple is None else capability_tuple.to_int()
    return cutlass_scaled_mm_supports_fp4(capability)
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    install(tmp_path / "site", "vllm", "0.19.1+cu130", {NVFP4: TEXT})
    return tmp_path / "site"


def run(*arguments: object) -> Result:
    return CliRunner(env={"COLUMNS": "250"}).invoke(main, ["patches", *map(str, arguments)])


def test_status_apply_status_revert(site: Path) -> None:
    before = tree(site)
    at = ("--auto", "--site-packages", site)
    first = run("status", *at)
    assert first.exit_code == 1 and "P4a" in first.output and "pristine" in first.output
    assert tree(site) == before
    applied = run("apply", *at)
    assert applied.exit_code == 0 and f"written: {NVFP4}" in applied.output and "As it should be." in applied.output
    assert run("status", *at).exit_code == 0
    assert run("apply", *at).exit_code == 0
    assert run("revert", *at).exit_code == 0
    assert tree(site) == before


def test_json_for_machines(site: Path) -> None:
    answer = json.loads(run("status", "--auto", "--site-packages", site, "--json").output)
    row = next(row for row in answer["rows"] if row["patch"] == "P4a")
    assert (row["state"], row["target"], row["wanted"], answer["converged"]) == ("pristine", NVFP4, True, False)


def test_conflict_is_one_paragraph_and_exit_1(site: Path) -> None:
    (site / NVFP4).write_text(TEXT + "# mine\n")
    result = run("apply", "--auto", "--site-packages", site)
    assert result.exit_code == 1 and "P4a is conflict" in result.output and "Traceback" not in result.output
    answer = json.loads(run("apply", "--auto", "--site-packages", site, "--json").output)
    assert "P4a is conflict" in answer["error"]


def test_an_engine_that_is_only_a_name_pins_vllm(site: Path) -> None:
    good = run("status", "--engine", "vllm-0.19.1-cu130", "--site-packages", site)
    assert good.exit_code == 1 and "pristine" in good.output
    other = run("status", "--engine", "vllm-0.20.1", "--site-packages", site)
    assert other.exit_code == 1 and "the patch set was made for vllm 0.20.1" in other.output


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "give either --engine NAME or --auto"),
        (("--auto", "--engine", "vllm-0.20.1"), "give either"),
        (("--engine", "vllm-0.20.1", "--with", "P2"), "--with goes with --auto"),
        (("--auto", "--with", "P99"), "unknown patch P99; there are P1"),
        (("--engine", "sglang"), "'sglang' is not in"),
    ],
)
def test_bad_input_is_exit_2(site: Path, arguments: tuple[str, ...], says: str) -> None:
    result = run("status", *arguments, "--site-packages", site)
    assert result.exit_code == 2 and says in result.output and "Traceback" not in result.output


def test_directories_that_are_none(tmp_path: Path) -> None:
    assert run("status", "--auto", "--site-packages", tmp_path / "gone").exit_code == 2
    empty = run("status", "--auto", "--site-packages", tmp_path)
    assert empty.exit_code == 2 and "expected a site-packages directory" in empty.output
