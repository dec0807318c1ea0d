"""Weights from a hub, fetched by the real client in a process of its own from a hub that misbehaves when told to."""

import hashlib
import json
import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.hub import Fault, LocalHub, serving
from sparkfleet.agent import receipt
from sparkfleet.agent.errors import HostError
from sparkfleet.agent.models import hub as hub_module
from sparkfleet.agent.models import peer, weights
from sparkfleet.agent.models.hub_shapes import HubFile, Listing
from sparkfleet.agent.shapes import Author, Glance, Hub, Weights, WeightsOrder, WheelSource
from sparkfleet.agent.supply import source as source_module
from sparkfleet.agent.supply.wheel_server import WheelServer
from sparkfleet.bundle import agent

REPOSITORY = "acme/tiny-7b"
AUTHOR = Author("r1", "ann")
SIZE = 12_000_000  # more than the client writes at a time (DOWNLOAD_CHUNK_SIZE)
SHARDS = {f"model-0000{n}-of-00002.safetensors": os.urandom(SIZE) for n in (1, 2)}
INDEX = {
    "metadata": {},
    "weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"},
}
FILES = {
    "config.json": b'{"model_type": "llama"}',
    "tokenizer.json": b"{}" * 700,
    "model.safetensors.index.json": json.dumps(INDEX).encode(),
    **SHARDS,
    # what a repository has besides, and no engine needs
    "README.md": b"# tiny",
    "pytorch_model.bin": os.urandom(1000),
    "original/consolidated.safetensors": os.urandom(1000),
    "original/params.json": b"{}",
    ".gitattributes": b"*.bin lfs",
}
NEEDED = {"config.json", "tokenizer.json", "model.safetensors.index.json", *SHARDS}
FIRST, SECOND = sorted(SHARDS)


class Place:
    """A host's models directory, and what the agent would be told about it."""

    def __init__(self, root: Path, hub: LocalHub, revision: str, python: str) -> None:
        self.hub, self.path = hub, root / "models" / "tiny"
        self.path.parent.mkdir()
        user = pwd.getpwuid(os.geteuid()).pw_name
        self.model = Weights(
            "tiny",
            str(self.path),
            str(root / "no"),
            (),
            Hub(REPOSITORY, revision, hub.endpoint, python, user),
        )

    def apply(self, token: str | None = None) -> None:
        weights.apply(WeightsOrder((self.model,), token), AUTHOR)

    def fails(self, token: str | None = None) -> str:
        with pytest.raises(HostError) as error:
            self.apply(token)
        return str(error.value)

    def at(self, revision: str) -> None:
        assert self.model.hub
        self.model = replace(self.model, hub=replace(self.model.hub, revision=revision))

    @property
    def problem(self) -> str:
        assert self.model.hub
        glance = Glance("tiny", str(self.path), (), REPOSITORY, self.model.hub.revision)
        return weights.look(glance, receipt.read().get("weights", {})).problem

    def there(self) -> dict[str, bytes]:
        found = (path for path in self.path.rglob("*") if path.is_file())
        return {str(path.relative_to(self.path)): path.read_bytes() for path in found}

    @property
    def asked(self) -> list[str]:
        """Transfers since the last time."""
        names = [name for name, _ in self.hub.offsets]
        self.hub.offsets.clear()
        return sorted(names)


@pytest.fixture
def hub() -> Iterator[LocalHub]:
    with serving() as hub:
        hub.add(REPOSITORY, FILES)
        yield hub


@pytest.fixture
def client() -> str:
    """A Python with huggingface_hub, as a release is one; tests/upstream has others."""
    return sys.executable


@pytest.fixture
def place(hub: LocalHub, client: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    zipapp = tmp_path / "agent.pyz"
    zipapp.write_bytes(agent())
    monkeypatch.setattr(hub_module, "_AGENT", str(zipapp))
    monkeypatch.setattr(hub_module, "PATIENCE", 3.0)
    monkeypatch.setattr(receipt, "PATH", tmp_path / "receipt.json")
    for name in hub_module._PROXIES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(receipt, "write", lambda path, content, mode: path.write_text(content))
    return Place(tmp_path, hub, next(iter(hub.repositories[REPOSITORY])), client)


def test_what_an_engine_needs_is_fetched_recorded_and_then_left_alone(place: Place) -> None:
    assert place.problem == "missing"
    place.apply()
    assert place.there() == {name: FILES[name] for name in NEEDED}
    assert place.problem == ""
    assert place.asked == sorted(NEEDED)
    assert list(place.path.parent.iterdir()) == [place.path], "nothing is left beside the model"
    requests = len(place.hub.requests)
    place.apply()
    assert len(place.hub.requests) == requests


def test_a_transfer_that_breaks_goes_on_where_it_was(place: Place) -> None:
    place.hub.faults.append(Fault(f"GET /content/{REPOSITORY}", times=1, cut=11_000_000))
    place.apply()
    assert place.there() == {name: FILES[name] for name in NEEDED}
    again = [start for name, start in place.hub.offsets if start]
    assert again == [10 * 1024 * 1024], place.hub.offsets


def test_a_run_that_was_cut_off_is_gone_on_with(place: Place) -> None:
    place.hub.faults.append(Fault("GET /content", times=2, cut=11_000_000))
    place.hub.faults.append(Fault("GET /content", times=100, status=503))
    said = place.fails()
    assert "What has come is kept" in said
    assert place.problem == "missing" and not place.path.exists()
    kept = {entry.name: entry.stat().st_size for entry in (place.path.parent / ".tiny.incoming/partial").iterdir()}
    assert [size for name, size in kept.items() if name.endswith(".incomplete")] == [10 * 1024 * 1024] * 2, kept
    place.hub.faults.clear()
    place.hub.offsets.clear()
    place.apply()
    assert place.there() == {name: FILES[name] for name in NEEDED}
    assert all(start for name, start in place.hub.offsets if name in SHARDS), place.hub.offsets


def test_only_the_file_that_was_lost_or_cut_is_fetched(place: Place) -> None:
    place.apply()
    (place.path / FIRST).unlink()
    os.truncate(place.path / "config.json", 5)
    assert "config.json has 5 bytes" in place.problem
    place.hub.offsets.clear()
    before = len(place.hub.requests)
    place.apply()
    assert place.asked == ["config.json", FIRST]
    assert not any("/api/" in request for request in place.hub.requests[before:])
    assert place.problem == "" and place.there() == {name: FILES[name] for name in NEEDED}


def test_a_lost_receipt_costs_reading_and_no_fetching(place: Place) -> None:
    place.apply()
    receipt.PATH.unlink()
    place.hub.offsets.clear()
    place.apply()
    assert place.asked == ["model.safetensors.index.json"]
    assert place.problem == ""


def test_another_revision_replaces_files_and_takes_away_what_it_has_not(place: Place) -> None:
    place.apply()
    (place.path / "config.json").stat()
    newer = {**FILES, "config.json": b'{"model_type": "llama", "new": 1}', "chat_template.jinja": b"{{ x }}"}
    del newer["tokenizer.json"]
    commit = place.hub.add(REPOSITORY, newer)
    assert place.problem == "", "a pinned revision stays"
    place.at(commit)
    assert "it is revision" in place.problem
    place.hub.offsets.clear()
    place.apply()
    assert place.asked == ["chat_template.jinja", "config.json", "model.safetensors.index.json"]
    assert place.there() == {name: newer[name] for name in (NEEDED - {"tokenizer.json"}) | {"chat_template.jinja"}}


def test_an_unpinned_revision_is_resolved_once_and_stays(place: Place) -> None:
    place.at("unpinned")
    place.apply()
    first = receipt.read()["weights"]["tiny"]["commit"]
    place.hub.add(REPOSITORY, {**FILES, "config.json": b"{}"})
    assert place.problem == ""
    (place.path / "config.json").unlink()
    place.apply()
    assert place.there()["config.json"] == FILES["config.json"]
    assert receipt.read()["weights"]["tiny"]["commit"] == first


def test_wrong_bytes_are_fetched_once_more_and_never_put_in_place(place: Place) -> None:
    place.hub.faults.append(Fault(f"GET /content/{REPOSITORY}", times=1, spoil=True))
    place.apply()
    assert place.there() == {name: FILES[name] for name in NEEDED}
    (place.path / FIRST).unlink()
    place.hub.faults.append(Fault(f"GET /content/{REPOSITORY}", times=9, spoil=True))
    said = place.fails()
    assert FIRST in said and "other bytes came" in said
    assert not (place.path / FIRST).exists()


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Fault("GET /content", 99, short=1000), ["shorter than the hub lists it", "`models`"]),
        (Fault("HEAD /acme", 99, commit="f" * 40), ["it answers with ffff", "Nothing was put in place"]),
        (Fault("/api/models", 99, commit="f" * 40), ["it answers with ffff"]),
        (Fault("/api/models", 99, status=429, headers={"Retry-After": "77"}), ["again in 77 s", "HF_TOKEN"]),
        (Fault("/api/models", 99, status=403, headers={"X-Error-Message": "No"}), ["HTTP 403, No", "`hub_token`"]),
        (Fault("HEAD /acme", 99, status=404, headers={"X-Error-Code": "EntryNotFound"}), ["does not have this file"]),
        (Fault("/api/models", 99, status=503), ["HTTP 503", "`models`", "`models_from`"]),
    ],
    ids=["truncated", "mirror", "listing", "busy", "forbidden", "entry", "down"],
)
def test_every_failure_says_what_to_do_and_leaves_no_model(place: Place, fault: Fault, said: list[str]) -> None:
    place.hub.faults.append(fault)
    message = place.fails()
    assert all(part in message for part in (REPOSITORY, *said)), message
    assert "\n" not in message and not place.path.exists()


def test_a_hub_that_asks_to_wait_is_waited_for(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.hub.faults.append(Fault("/api/models", 1, status=429, headers={"Retry-After": "1"}))
    place.hub.faults.append(Fault(f"HEAD /{REPOSITORY}/resolve", 1, status=429, headers={"Retry-After": "1"}))
    place.apply()
    assert place.problem == ""
    assert capsys.readouterr().out.count("HTTP 429; again in 1 s") == 2


def test_a_revision_that_is_not_there(place: Place) -> None:
    place.at("0" * 40)
    assert "no revision 0000" in place.fails()


def test_a_repository_that_is_not_there(place: Place) -> None:
    place.hub.repositories.clear()
    assert "no such repository" in place.fails()


def test_a_gated_model_names_licence_and_token(place: Place) -> None:
    place.hub.gated = True
    said = place.fails()
    assert f"accept its licence at {place.hub.endpoint}/{REPOSITORY}" in said and "`hub_token`" in said


def test_no_network_is_told_soon_with_the_other_ways(place: Place) -> None:
    assert place.model.hub
    place.model = replace(place.model, hub=replace(place.model.hub, endpoint="http://127.0.0.1:9"))
    said = place.fails()
    assert "no connection to http://127.0.0.1:9" in said and "`models`" in said and "`models_from`" in said


def test_the_token_reaches_the_hub_alone(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    place.hub.token = "hf_s3cr3t"
    assert "no such repository" in place.fails()
    assert "does not know the token" in place.fails("hf_wrong")
    place.hub.rate = 12_000_000
    watched = subprocess.Popen(
        ["sh", "-c", "while sleep 0.1; do cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null; done"],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    place.apply("hf_s3cr3t")
    os.killpg(watched.pid, 9)
    assert b"hf_s3cr3t" not in watched.communicate()[0]
    assert place.problem == ""
    assert place.hub.secrets_at_cdn == []
    assert "hf_s3cr3t" not in receipt.PATH.read_text() + "".join(capfd.readouterr())
    assert "hf_s3cr3t" not in repr(WeightsOrder((place.model,), "hf_s3cr3t"))


def test_progress_is_told_without_a_terminal(
    place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "INTERVAL", 0.3)
    place.hub.rate = 12_000_000
    place.apply()
    said = capsys.readouterr().out
    assert f"fetching {REPOSITORY} at" in said and "of 5 files, 0.00 of 0.02 GB are here" in said
    assert "MB/s, " in said and "s to go" in said


def test_the_room_is_looked_at_before_anything_comes(place: Place) -> None:
    huge: dict[str, Any] = {"sha256": "a" * 64, "size": 10**16, "pointerSize": 1}
    place.hub.listing = {
        "sha": next(iter(place.hub.repositories[REPOSITORY])),
        "siblings": [{"rfilename": "model.safetensors", "size": 10**16, "blobId": "b" * 40, "lfs": huge}],
    }
    said = place.fails()
    assert "10000000.0 GB are to come" in said and "free room below the models directory" in said
    assert place.asked == []


@pytest.mark.parametrize("name", ["../escape.json", "/etc/x.json", "a/../../b.json"])
def test_a_name_that_leads_out_is_refused(place: Place, name: str) -> None:
    commit = place.hub.add(REPOSITORY, {"model.safetensors": b"x", name: b"{}"})
    place.at(commit)
    assert "plain path" in place.fails()
    assert not place.path.exists()


def test_a_fetching_process_that_lists_other_files_than_it_was_told_is_not_believed() -> None:
    hub = Hub(REPOSITORY, "a" * 40, None, "/python", "root")
    told = Listing("a" * 40, (HubFile("config.json", 2, f"sha256-{'1' * 64}"),))
    assert hub_module._checked(told, hub, told) == told
    assert hub_module._checked(told, hub, replace(told, commit="unpinned")) == told
    for other in (replace(told, commit="b" * 40), replace(told, files=(replace(told.files[0], name="evil.py"),))):
        with pytest.raises(HostError, match="about other files than it was told"):
            hub_module._checked(other, hub, told)


def test_files_that_an_engine_would_load_by_mistake_are_named(place: Place) -> None:
    place.path.mkdir()
    (place.path / "adapter.safetensors").write_bytes(b"x")
    assert "adapter.safetensors" in place.fails()


# --- from another Spark ------------------------------------------------------------------------------------------


@pytest.fixture
def giver(place: Place, tmp_path: Path) -> Iterator[WheelServer]:
    """A Spark that has the model, handing it out; ``place`` is then another, which has nothing."""
    place.apply()
    files = peer.offered("tiny", tmp_path)
    server = WheelServer("127.0.0.1", ["127.0.0.1"], "token", files)
    server.start()
    source = WheelSource("spark-01", "127.0.0.1", server.port, "token")
    other = tmp_path / "other" / "tiny"
    other.parent.mkdir()
    place.path, place.model = other, replace(place.model, path=str(other), peer=source)
    receipt.PATH.unlink()
    yield server
    server.shutdown()
    server.server_close()


def test_another_spark_has_it_and_no_hub_is_asked(place: Place, giver: WheelServer) -> None:
    asked = len(place.hub.requests)
    place.apply()
    assert place.there() == {name: FILES[name] for name in NEEDED}
    assert place.problem == "" and len(place.hub.requests) == asked
    assert list(place.path.parent.iterdir()) == [place.path]
    sent = dict(giver.sent)
    (place.path / "config.json").unlink()
    place.apply()
    assert sum(giver.sent.values()) - sum(sent.values()) < 5000, "the lost file and the list"


def test_what_had_come_from_another_spark_is_not_sent_again(place: Place, giver: WheelServer) -> None:
    staging = place.path.parent / ".tiny.incoming" / "partial"
    staging.mkdir(parents=True)
    key = f"sha256-{hashlib.sha256(SHARDS[FIRST]).hexdigest()}"
    (staging / f"{key}.incomplete").write_bytes(SHARDS[FIRST][:7_000_000])
    place.apply()
    assert place.there() == {name: FILES[name] for name in NEEDED}
    assert sum(giver.sent.values()) < 2 * SIZE - 7_000_000 + 10_000


def test_another_sparks_bytes_are_checked(place: Place, giver: WheelServer) -> None:
    victim = next(path for path in giver.wheels.values() if path.name == FIRST)
    victim.write_bytes(b"x" * SIZE)
    assert f"{FIRST}: twice, spark-01 handed out other bytes" in place.fails()
    assert not place.path.exists()
    with pytest.raises(HostError, match="not here"):
        peer.offered("tiny", place.path.parent)


def test_another_spark_with_another_revision_is_refused(place: Place, giver: WheelServer) -> None:
    place.at("e" * 40)
    assert "spark-01 has tiny in another revision" in place.fails()


def test_another_spark_that_is_gone_is_named(place: Place, giver: WheelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "PAUSE", 0.01)
    giver.shutdown()
    giver.server_close()
    assert "weights: spark-01 hands them out at 127.0.0.1" in place.fails()
