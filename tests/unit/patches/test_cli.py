"""``sparkfleet patches`` as a person and a script see it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sparkfleet.agent.patching import ProbeResult, Report, Row, State
from sparkfleet.cli import main
from sparkfleet.cli.patches import _end

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


def run(*arguments: object, columns: int = 250) -> Result:
    return CliRunner(env={"COLUMNS": str(columns)}).invoke(main, ["patches", *map(str, arguments)])


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


def test_nothing_is_cut_on_a_small_screen_and_the_end_says_what_to_type(site: Path) -> None:
    output = run("status", "--auto", "--with", "P2", "--site-packages", site, columns=80).output
    assert "…" not in output
    lines = output.splitlines()
    assert lines[0].split() == ["patch", "wanted", "state", "why"]
    assert next(line for line in lines if line.startswith("P4a")).split()[:3] == ["P4a", "yes", "pristine"]
    assert f"P4a  {NVFP4}" in lines and "     https://github.com/vllm-project/vllm/issues/36821" in lines
    assert any(line.startswith("not in this release: P1, P2, ") for line in lines)
    assert any(line.startswith("for what is not installed: P8, P9, ") for line in lines)
    assert lines[-1] == f"P4a is missing: sparkfleet patches apply --auto --with P2 --site-packages {site}"
    assert run("apply", "--auto", "--site-packages", site).output.splitlines()[-1] == "As it should be."
    assert run("revert", "--auto", "--site-packages", site).output.splitlines()[-1] == "As it was shipped."


def test_the_end_names_what_must_be_done_by_hand(site: Path) -> None:
    (site / NVFP4).write_text(TEXT + "# mine\n")
    last = run("status", "--engine", "vllm-0.19.1", "--site-packages", site, columns=80).output.splitlines()[-1]
    assert last.startswith("Do by hand first what the table says of P4a: sparkfleet patches apply --engine vllm-0.19.1")


def test_a_record_that_lists_nothing_is_not_as_it_should_be(site: Path) -> None:
    (site / "vllm-0.19.1+cu130.dist-info/RECORD").write_text("__editable__.vllm-0.19.1.pth,,\n")
    result = run("status", "--auto", "--site-packages", site)
    assert result.exit_code == 1 and "is an editable install" in result.output
    assert run("apply", "--auto", "--site-packages", site).exit_code == 1


def row(patch: str, state: State, *, wanted: bool = True, target: str = "a.py") -> Row:
    return Row(patch, "", "required", wanted, "vllm", target, state, "", "")


@pytest.mark.parametrize(
    ("report", "says"),
    [
        (Report(1, "", "", (row("P1", "applied"),)), "As it should be."),
        (Report(1, "", "", (row("P1", "pristine"), row("P2", "pristine"))), "P1 and P2 are missing: TYPE"),
        (Report(1, "", "", (row("P2", "applied", wanted=False),)), "P2 is applied and not wanted: TYPE"),
        (Report(1, "", "", (row("P8", "pristine", target=""),)), "Do by hand first what the table says of P8: TYPE"),
        (
            Report(1, "", "", (row("P1", "pristine"), row("P7", "missing"))),
            "P1 is missing; do by hand first what the table says of P7: TYPE",
        ),
        (Report(1, "", "", (), True), "A change was cut off here, which the next apply settles first: TYPE"),
        (
            Report(1, "", "", (row("P1", "pristine"),), probes=(ProbeResult("P1", "failed", "no"),)),
            "P1: the probe failed, see its line; nothing was changed; P1 is missing.",
        ),
    ],
)
def test_the_end(report: Report, says: str) -> None:
    assert _end(report, "TYPE") == says


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
