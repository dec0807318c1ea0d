"""What of a repository or directory an engine needs, and whether it is whole; hostile input is refused."""

import contextlib
import json
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkfleet.agent.errors import HostError
from sparkfleet.agent.models.directory import manifest
from sparkfleet.agent.models.model_files import INDEX, check_name, needed, safetensors_size, shards
from sparkfleet.agent.shapes import Hub

COMMIT = "a" * 40
HUB = Hub("acme/tiny", COMMIT, None, "python", "nobody")


def index(*names: str) -> str:
    return json.dumps({"weight_map": {f"w{number}": name for number, name in enumerate(names)}})


def safetensors(size: int) -> bytes:
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(size)


def test_of_several_forms_the_indexed_one_is_taken() -> None:
    # as of gpt-oss-120b: the same 65 GB three times
    names = [
        INDEX,
        "model-00000-of-00001.safetensors",
        "config.json",
        "chat_template.jinja",
        "tokenizer.json",
        "LICENSE",
    ]
    others = ["README.md", ".gitattributes", "metal/model.bin", "original/model.safetensors", "original/config.json"]
    assert needed([*names, *others], index("model-00000-of-00001.safetensors")) == sorted(names)


def test_without_an_index() -> None:
    assert needed(["model.safetensors", "consolidated.safetensors", "a.py"], None) == ["a.py", "model.safetensors"]
    assert needed(["part1.safetensors", "part2.safetensors", "x/y.json"], None) == [
        "part1.safetensors",
        "part2.safetensors",
        "x/y.json",
    ]


def test_pickles_alone_are_not_taken() -> None:
    with pytest.raises(HostError, match="pickles run code"):
        needed(["pytorch_model.bin", "config.json"], None)


def test_a_shard_that_is_not_there_is_named() -> None:
    with pytest.raises(HostError, match=r"names b\.safetensors, not there"):
        needed([INDEX, "a.safetensors"], index("a.safetensors", "b.safetensors"))


@given(st.text())
def test_an_index_is_read_or_refused(text: str) -> None:
    with pytest.raises(HostError):
        shards(text)


@given(
    st.recursive(
        st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_json_that_is_no_index_is_refused_and_names_stay_inside(value: object) -> None:
    try:
        names = shards(json.dumps({"weight_map": value}))
    except HostError:
        return
    assert all(check_name(name) for name in names)


@given(st.text())
def test_a_name_is_plain_or_refused(name: str) -> None:
    try:
        check_name(name)
    except HostError:
        return
    assert (Path("/model") / name).is_relative_to("/model") and ".." not in name.split("/")


@given(st.binary(max_size=200))
def test_a_safetensors_header_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "x.safetensors"
    path.write_bytes(content)
    with contextlib.suppress(HostError):
        assert isinstance(safetensors_size(path), int)


# --- a directory without a manifest ------------------------------------------------------------------------------


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for name in ("a.safetensors", "b.safetensors"):
        (tmp_path / name).write_bytes(safetensors(100))
    (tmp_path / INDEX).write_text(index("a.safetensors", "b.safetensors"))
    (tmp_path / "config.json").write_text("{}")
    return tmp_path


def record(source: Path, name: str, commit: str, etag: str) -> None:
    path = source / ".cache/huggingface/download" / f"{name}.metadata"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{commit}\n{etag}\n1.0\n")


def test_a_whole_directory(source: Path) -> None:
    files, commit = manifest(source, HUB)
    assert [file.name for file in files] == ["a.safetensors", "b.safetensors", "config.json", INDEX]
    assert commit == "" and not any(file.sha256 for file in files)


def test_what_the_client_left_there_is_believed(source: Path) -> None:
    record(source, "a.safetensors", COMMIT, "b" * 64)
    files, commit = manifest(source, HUB)
    assert commit == COMMIT and files[0].sha256 == "b" * 64


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("b.safetensors", safetensors(100)[:-1], "cut off: it has"),
        ("b.safetensors", b"", "cut off, or no safetensors file"),
        (".cache/huggingface/download/x.incomplete", b"", "still coming"),
        (".cache/huggingface/download/config.json.metadata", f"{'c' * 40}\ne\n1\n".encode(), "it is revision cccc"),
    ],
)
def test_a_directory_that_is_not_whole_or_another(source: Path, name: str, content: bytes, said: str) -> None:
    (source / name).parent.mkdir(parents=True, exist_ok=True)
    (source / name).write_bytes(content)
    with pytest.raises(HostError, match=said):
        manifest(source, HUB)


def test_a_missing_shard(source: Path) -> None:
    (source / "a.safetensors").unlink()
    with pytest.raises(HostError, match=r"a\.safetensors, not there"):
        manifest(source, HUB)
