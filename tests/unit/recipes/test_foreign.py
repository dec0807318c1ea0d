"""Recipes of others become ours, and nothing of theirs is dropped without a word."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkfleet.catalog.recipes import entry
from sparkfleet.cli import main
from sparkfleet.errors import UserError
from sparkfleet.foreign import FILL_IN, imported, newest

#: In the shape of spark-vllm-docker's.
FIRST = """\
# a comment
recipe_version: "1"
name: Gpt-OSS
description: gpt-oss-120b on one node
model: openai/gpt-oss-120b
container: vllm-node-mxfp4
solo_only: true
cluster_only: false
build_args:
  - --exp-mxfp4
mods:
  - mods/fix-something
defaults:
  port: 8000
  host: 0.0.0.0
  tensor_parallel: 1
  gpu_memory_utilization: 0.7
  max_model_len: 131072
  max_num_batched_tokens: 8192
env:
  VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8: "1"
  VLLM_MARLIN_USE_ATOMIC_ADD: 1
  HF_TOKEN: "hf_abcdefghijkl"
command: |
  vllm serve openai/gpt-oss-120b \\
    --tool-call-parser openai --reasoning-parser openai_gptos --enable-auto-tool-choice \\
    --gpu-memory-utilization {gpu_memory_utilization} \\
    --no-enable-prefix-caching \\
    --chat-template unsloth.jinja \\
    --mxfp4-backend CUTLASS --mxfp4-layers moe,qkv,o,lm_head \\
    --kv-cache-dtype fp8 \\
    --max-model-len {max_model_len} --max-num-batched-tokens {max_num_batched_tokens} \\
    --speculative-config '{{"method":"mtp","num_speculative_tokens":3}}' \\
    -tp {tensor_parallel} --host {host} --port {port}
"""

#: In the shape of sparkrun's.
SECOND = """\
model: nobody/has-this
model_revision: main
runtime: vllm
min_nodes: 2
container: somebody/image:1
metadata:
  description: of nobody
defaults:
  port: 9000
  served_model_name: mine
  base: "{model}"
  max_model_len: 32k
command: |
  export X=1
  vllm serve {base} --served-model-name {served_model_name} --port {port} --max-model-len {max_model_len} \\
    --tensor-parallel-size 2 --distributed-executor-backend ray --enforce-eager
"""


def read(tmp_path: Path, text: str, name: str = "their-recipe.yaml") -> tuple[dict[str, Any], str]:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    found = imported(path)
    ours = yaml.safe_load(found.text)
    assert isinstance(ours, dict)
    return ours, "\n".join(found.left_out)


def test_a_recipe_of_spark_vllm_docker_becomes_a_valid_one_of_ours(tmp_path: Path) -> None:
    ours, left_out = read(tmp_path, FIRST)
    path = tmp_path / "mine" / "their-recipe.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump(ours), encoding="utf-8")
    assert entry(path).name == "their-recipe"
    assert ours["flags"] == {
        "tool-call-parser": "openai",
        "enable-auto-tool-choice": True,
        "enable-prefix-caching": False,
        "kv-cache-dtype": "fp8",
        "max-num-batched-tokens": 8192,
        "speculative-config": {"method": "mtp", "num_speculative_tokens": 3},
    }
    assert ours["environment"] == {"VLLM_MARLIN_USE_ATOMIC_ADD": "1"}
    assert (ours["port"], ours["context"], ours["model"]["revision"]) == (8000, 131072, "unpinned")
    assert ours["engines"][0]["name"] == newest().name
    for said in (
        "container vllm-node-mxfp4: an image",
        "mod mods/fix-something",
        "build_args ['--exp-mxfp4']",
        "flag --gpu-memory-utilization 0.7: it is derived from `memory`",
        "flag --chat-template unsloth.jinja: a file of theirs",
        "flag --mxfp4-backend CUTLASS: vllm-0.33.0 does not know it, nor does any engine here",
        "flag --mxfp4-layers moe,qkv,o,lm_head",
        "flag --reasoning-parser openai_gptos: vllm-0.33.0 has no such parser; nearest: openai_gptoss",
        "flag --host 0.0.0.0",
        "VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8=1: vllm-0.33.0 does not know it; these do: vllm-0.20.1, vllm-0.23.0",
        "variable HF_TOKEN: a secret",
    ):
        assert said in left_out
    assert "hf_abc" not in left_out + str(ours)


def test_a_recipe_of_sparkrun_becomes_one_that_says_what_is_missing(tmp_path: Path) -> None:
    ours, left_out = read(tmp_path, SECOND)
    assert (ours["served_as"], ours["port"], ours["context"]) == ("mine", 9000, 32000)
    assert ours["flags"] == {"enforce-eager": True}
    assert ours["memory"]["weights"].startswith(FILL_IN)
    for said in (
        "min_nodes 2: it spans several Sparks",
        "flag --tensor-parallel-size 2: it spans several Sparks",
        "flag --distributed-executor-backend ray",
        "model_revision main: no commit",
        "before the command: export",
        "before the command: X=1",
    ):
        assert said in left_out
    path = tmp_path / "mine" / "their-recipe.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump(ours), encoding="utf-8")
    with pytest.raises(UserError, match="FILL IN"):
        entry(path)


def test_without_a_command_the_defaults_are_the_flags(tmp_path: Path) -> None:
    ours, left_out = read(
        tmp_path, "model: a/b\ndefaults: {tensor_parallel: 2, max_num_seqs: 4, async_scheduling: false}"
    )
    assert ours["flags"] == {"max-num-seqs": 4, "async-scheduling": False}
    assert "flag --tensor-parallel-size 2" in left_out


def test_secrets_are_neither_taken_nor_shown(tmp_path: Path) -> None:
    text = (
        "model: a/b\nmy_token: abcd\nextra: hf_0123456789ab\n"
        "command: HF_TOKEN=efgh vllm serve a/b --api-key ijkl --hf-token mnop --download-dir hf_0123456789ab"
    )
    ours, left_out = read(tmp_path, text)
    for secret in ("abcd", "efgh", "ijkl", "mnop", "hf_01"):
        assert secret not in left_out + str(ours)
    assert "flag --api-key" in left_out and "my_token" in left_out


def test_secrets_by_other_names_and_in_other_places_are_neither_taken_nor_shown(tmp_path: Path) -> None:
    text = """
recipe_version: "1"
model: a/b
container: x://ann:s3cret@registry/image
nested: {HF_TOKEN: s3cret}
env: {MY_PASSWD: s3cret, TLS_PRIVATE_KEY: s3cret, HEADER: Bearer s3cretabcdef}
command: vllm serve a/b --db-passwd s3cret --otlp-traces-endpoint x://ann:s3cret@host
"""
    ours, left_out = read(tmp_path, text)
    assert "s3cret" not in left_out + str(ours)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- a", "expected a recipe, a mapping"),
        ("name: x", "model: expected a repository"),
        ("model: a/b\nruntime: sglang", "runtime: 'sglang' is not vLLM"),
        ("model: a/b\ncommand: llama-server -hf x", "expected one `vllm serve`; found 0"),
        ("model: a/b\ncommand: vllm serve {x}", "{x} has no default"),
        ("model: a/b\ncommand: vllm serve 'a", "cannot be read as a command line"),
        ("model: a/b\ndefaults: {a: '{b}{b}', b: '{a}{a}'}\ncommand: vllm serve {a}", "no default"),
        ("model: a/b\ndefaults: {a: '" + "{a}" * 50 + "'}\ncommand: vllm serve {a}", "longer than"),
        ("model: a/b\ndefaults: [a]", "defaults: expected names and values"),
        ("model: a/b\nenv: a", "env: expected names and values"),
    ],
)
def test_what_cannot_be_read_is_refused_in_words(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as error:
        imported(path)
    assert said in str(error.value)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_damaged_files_never_crash(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    whole = data.draw(st.sampled_from((FIRST, SECOND)))
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, min(len(whole), start + 40)))
    path = tmp_path_factory.getbasetemp() / "damaged.yaml"
    path.write_text(whole[:start] + data.draw(st.text(max_size=20)) + whole[end:], encoding="utf-8", errors="replace")
    try:
        found = imported(path)
    except UserError as error:
        assert str(path) in str(error)
    else:
        assert isinstance(yaml.safe_load(found.text), dict)


def test_the_command_prints_ours_and_lists_the_rest_apart(tmp_path: Path) -> None:
    path = tmp_path / "theirs.yaml"
    path.write_text(SECOND, encoding="utf-8")
    done = CliRunner().invoke(main, ["import", str(path), "--engine", "vllm-0.23.0"])
    assert done.exit_code == 0
    assert yaml.safe_load(done.stdout)["engines"][0]["name"] == "vllm-0.23.0"
    assert "not taken: min_nodes 2" in done.stderr
    assert FILL_IN in done.stderr
    unknown = CliRunner().invoke(main, ["import", str(path), "--engine", "vllm-9"])
    assert unknown.exit_code == 2 and "engine 'vllm-9' is not in" in unknown.stderr
    fork = CliRunner().invoke(main, ["import", str(path), "--engine", "vllm-0.17.1-mxfp4-fork"])
    assert fork.exit_code == 2 and "before `sparkfleet lock vllm-0.17.1-mxfp4-fork" in fork.stderr


def test_it_can_be_given_a_name_for_the_file_it_goes_into(tmp_path: Path) -> None:
    theirs = tmp_path / "eugr.yaml"
    theirs.write_text(FIRST)
    run = CliRunner().invoke(main, ["import", str(theirs), "--name", "my-model"])
    assert run.exit_code == 0 and "name: my-model\n" in run.stdout
    ours = tmp_path / "my-model.yaml"
    ours.write_text(run.stdout)
    assert entry(ours).name == "my-model"
    bad = CliRunner().invoke(main, ["import", str(theirs), "--name", "My Model"])
    assert bad.exit_code != 0 and "--name" in bad.stderr


def test_one_spark_is_said_to_be_understood(tmp_path: Path) -> None:
    theirs = tmp_path / "eugr.yaml"
    theirs.write_text(FIRST)
    assert any("tensor-parallel-size 1: one Spark" in one for one in imported(theirs).left_out)
