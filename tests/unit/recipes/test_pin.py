"""Pinning, with the hub's real client against a hub on this machine."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.hub import Fault, LocalHub, serving
from sparkfleet.catalog import recipes
from sparkfleet.catalog.recipes import File, Recipe, entry
from sparkfleet.catalog.yaml import read
from sparkfleet.cli import main
from sparkfleet.errors import UserError
from sparkfleet.hub import Revision
from sparkfleet.pinning import edited, pin, pinnable

GPT = recipes.RECIPES / "gpt-oss-120b.yaml"
REPOSITORY = "openai/gpt-oss-120b"
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
INDEX = json.dumps({"weight_map": {"a": SHARDS[0], "b": SHARDS[1]}}).encode()
FILES = {
    "config.json": b"{}",
    "model.safetensors.index.json": INDEX,
    SHARDS[0]: b"first",
    SHARDS[1]: b"second",
    "tokenizer.json": b"tokens",
    "README.md": b"read me",
    "original/model.safetensors": b"the same in another form",
    "original/config.json": b"{}",
}
SECRET = "hf_this-is-a-secret"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[LocalHub]:
    with serving() as found:
        monkeypatch.setenv("HF_ENDPOINT", found.endpoint)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    copy = tmp_path / GPT.name
    copy.write_bytes(GPT.read_bytes())
    return copy


def run(path: Path, *more: str) -> Result:
    return CliRunner().invoke(main, ["pin", str(path), *more])


def test_commit_and_files_are_written_and_everything_else_stays(hub: LocalHub, path: Path) -> None:
    commit = hub.add(REPOSITORY, FILES)
    before = path.read_text(encoding="utf-8").splitlines()
    done = run(path)
    assert done.exit_code == 0, done.output
    assert f"pinned to {commit} of {REPOSITORY}, 5 files" in done.stdout
    after = path.read_text(encoding="utf-8").splitlines()
    gone = [line for line in before if line not in after]
    assert [line.split(":")[0].strip() for line in gone] == ["revision", "bytes", "source"]
    found = entry(path)
    assert isinstance(found, Recipe) and found.model.revision == commit and found.model.pinned
    assert {file.name: (file.size, file.sha256) for file in found.model.files} == {
        name: (len(FILES[name]), hashlib.sha256(FILES[name]).hexdigest())
        for name in ("config.json", "model.safetensors.index.json", *SHARDS, "tokenizer.json")
    }
    assert not any("resolve" in request and "safetensors" in request.split("/")[-1] for request in hub.requests[1:2])
    again = run(path)
    assert "already at" in again.stdout and path.read_text(encoding="utf-8").splitlines() == after


def test_a_newer_commit_replaces_the_old_one_and_an_older_one_can_be_named(hub: LocalHub, path: Path) -> None:
    first = hub.add(REPOSITORY, FILES)
    second = hub.add(REPOSITORY, {**FILES, "config.json": b'{"a": 1}'})
    assert second in run(path).stdout
    assert first in run(path, "--revision", first).stdout
    text = path.read_text(encoding="utf-8")
    assert text.count("files:") == 1 and second not in text


def test_weights_are_not_fetched_to_be_pinned(hub: LocalHub, path: Path) -> None:
    hub.add(REPOSITORY, FILES)
    run(path)
    assert not [name for name, _ in hub.offsets if name.endswith(".safetensors")]


def test_a_token_goes_to_the_hub_and_nowhere_else(hub: LocalHub, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add(REPOSITORY, FILES)
    hub.token = SECRET
    refused = run(path)
    assert refused.exit_code == 2 and "set HF_TOKEN" in refused.stderr
    monkeypatch.setenv("HF_TOKEN", SECRET)
    done = run(path)
    assert done.exit_code == 0
    assert SECRET not in done.output + refused.output + path.read_text(encoding="utf-8")
    assert not hub.secrets_at_cdn


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (
            Fault("GET /api/models", times=99, status=404, headers={"X-Error-Code": "RepoNotFound"}),
            "no such repository",
        ),
        (Fault("GET /api/models", times=99, status=401, headers={"X-Error-Code": "GatedRepo"}), "wants to be asked"),
        (
            Fault("GET /api/models", times=99, status=404, headers={"X-Error-Code": "RevisionNotFound"}),
            "no such revision",
        ),
        (Fault("GET /api/models", times=99, status=403), "status 403"),
        (Fault("GET /api/models", times=99, status=400), "status 400"),
    ],
)
def test_what_the_hub_refuses_is_told_in_words(hub: LocalHub, path: Path, fault: Fault, said: str) -> None:
    hub.add(REPOSITORY, FILES)
    hub.faults.append(fault)
    before = path.read_bytes()
    done = run(path)
    assert done.exit_code == 2 and said in done.stderr, done.output
    assert path.read_bytes() == before


def test_spoilt_bytes_are_not_pinned(hub: LocalHub, path: Path) -> None:
    hub.add(REPOSITORY, FILES)
    hub.faults.append(Fault("/config.json", times=99, spoil=True))
    done = run(path)
    assert done.exit_code == 2 and "config.json: other bytes came than the hub lists" in done.stderr


def test_a_repository_without_the_files_of_its_index_is_not_pinned(hub: LocalHub, path: Path) -> None:
    hub.add(REPOSITORY, {name: content for name, content in FILES.items() if name != SHARDS[1]})
    done = run(path)
    assert done.exit_code == 2 and SHARDS[1] in done.stderr


def test_a_hub_that_is_not_there(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    done = run(path)
    assert done.exit_code == 2 and "the hub cannot be asked" in done.stderr


def test_the_labs_own_models_and_what_is_known_to_be_bad_cannot_be_pinned() -> None:
    assert "there is nothing to pin" in CliRunner().invoke(main, ["pin", "tiny-llama"]).stderr
    assert "known not to work" in CliRunner().invoke(main, ["pin", "nemotron-3-nano-w4a16-mtp"]).stderr
    assert "did you mean 'tiny-llama'" in CliRunner().invoke(main, ["pin", "tiny-lama"]).stderr


REVISION = Revision(
    "0" * 39 + "a", (File(name="no", size=1, sha256="0" * 64), File(name="a b: #", size=2, sha256="1e9" + "0" * 61))
)


@pytest.mark.parametrize("source", sorted(recipes.RECIPES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_recipe_of_the_catalog_can_be_pinned(tmp_path: Path, source: Path) -> None:
    path = tmp_path / source.name
    path.write_bytes(source.read_bytes())
    try:
        found = pinnable(path)
    except UserError:
        return
    assert pin(path, found, REVISION)
    again = entry(path)
    assert isinstance(again, Recipe)
    assert (again.model.revision, again.model.files) == (REVISION.commit, REVISION.files)
    assert not pin(path, again, REVISION)


@pytest.mark.parametrize(
    "model",
    [
        "model: {name: x, repository: a/b, revision: unpinned, bytes: 1, source: s}",
        "model:\n  name: x\n  repository: a/b\n  revision: >-\n    unpinned\n  bytes: 1\n  source: s",
        "model:\n  name: x\n  repository: a/b\n  source: &s s\n  revision: unpinned\n  bytes: 1\n  architecture: *s",
    ],
)
def test_what_cannot_be_changed_line_by_line_is_left_alone(tmp_path: Path, model: str) -> None:
    path = tmp_path / GPT.name
    text = GPT.read_text(encoding="utf-8")
    start, end = text.index("model:\n"), text.index("served_as:")
    path.write_text(text[:start] + model + "\n" + text[end:], encoding="utf-8")
    before = path.read_bytes()
    with pytest.raises(UserError):
        pin(path, pinnable(path), REVISION)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_comments_line_ends_and_mode_stay(path: Path) -> None:
    text = GPT.read_text(encoding="utf-8").replace("revision: unpinned", "revision: unpinned  # not by me")
    path.write_text(text, encoding="utf-8", newline="\r\n")
    path.chmod(0o640)
    pin(path, pinnable(path), REVISION)
    written = path.read_bytes()
    assert f"revision: {REVISION.commit}  # not by me\r\n".encode() in written
    assert written.count(b"\n") == written.count(b"\r\n")
    assert path.stat().st_mode & 0o777 == 0o640


NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1, max_size=12)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(NAMES, st.integers(0, 10**12), min_size=1, max_size=4))
def test_any_name_of_a_file_is_read_back(sizes: dict[str, int]) -> None:
    rows = tuple(File.model_construct(name=name, size=size, sha256="0" * 64) for name, size in sizes.items())
    text = edited(read(GPT), GPT.read_text(encoding="utf-8"), Revision("0" * 40, rows))
    assert {row["name"]: row["size"] for row in yaml.safe_load(text)["model"]["files"]} == sizes
