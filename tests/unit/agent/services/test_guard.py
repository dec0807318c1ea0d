"""The guard's own part: reading what must be true, and refusing in words that help."""

import json
import os
import socket
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from sparkfleet.agent.errors import HostError
from sparkfleet.agent.facts.shapes import Gpu
from sparkfleet.agent.services import guard
from sparkfleet.agent.shapes import Guard, Vocabularies, Vocabulary
from sparkfleet.desired import guard as guard_of
from tests.unit.builders import plan


@pytest.fixture
def wanted(lock: str) -> Guard:
    made = plan(lock)
    return guard_of(made, made.recipes[0])


def written(tmp_path: Path, wanted: Guard, **changes: object) -> Path:
    path = tmp_path / "r.guard"
    path.write_text("# Managed by sparkfleet\n" + json.dumps(asdict(wanted) | changes, indent=1))
    return path


def test_it_is_read_back(wanted: Guard, tmp_path: Path) -> None:
    assert guard.read(written(tmp_path, wanted)) == wanted


def test_what_another_version_added_is_left_out(wanted: Guard, tmp_path: Path) -> None:
    assert guard.read(written(tmp_path, wanted, weather="fine")) == wanted


@pytest.mark.parametrize("content", ["", "{}", "[]", "nonsense", '{"recipe": 7}'])
def test_what_is_not_understood_refuses(tmp_path: Path, content: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r.guard"
    path.write_text(content)
    with pytest.raises(HostError, match="is not understood"):
        guard.read(path)
    assert guard.guard(str(path), ["/bin/true"]) == guard.REFUSED
    assert "sparkfleet guard: refused: " in capsys.readouterr().err


def test_a_host_where_nothing_is_as_deployed_is_told_all_of_it(
    wanted: Guard, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sick = replace(wanted, release=str(tmp_path / "gone"), weights=replace(wanted.weights, path=str(tmp_path)))
    assert guard.guard(str(written(tmp_path, sick)), ["/bin/true"]) == guard.REFUSED
    said = capsys.readouterr().err
    assert "release gone: its build did not end" in said
    assert "config.json is missing" in said
    assert said.count("Remedy: ") == len(said.splitlines())


@pytest.mark.parametrize(
    ("gpu", "rule"),
    [
        (Gpu("ok", "NVIDIA GB10", "12.1", "580.142"), None),
        (Gpu("ok", "NVIDIA GB10", "12.1", "575.57.08"), "driver-too-old"),
        (Gpu("ok", "NVIDIA H100", "9.0", "580.142"), "not-a-spark"),
        (Gpu("no-devices", detail="No devices were found"), "gpu-no-devices"),
        (Gpu("mismatch", detail="Driver/library version mismatch"), "gpu-mismatch"),
        (Gpu("timeout", detail="no answer"), "gpu-timeout"),
        (Gpu("missing", detail="not found"), "gpu-missing"),
    ],
)
def test_the_driver_policy_is_that_of_preflight(wanted: Guard, gpu: Gpu, rule: str | None) -> None:
    found = [one.rule for one in guard.rules.judge(wanted.rules, guard._case(wanted, gpu))]
    assert found == ([rule] if rule else [])


@pytest.fixture
def listener() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_taken_port_is_told_with_its_user(wanted: Guard, listener: int) -> None:
    (finding,) = guard._port(replace(wanted, port=listener))
    assert f"port {listener}: a process of user" in finding.what
    with socket.create_server(("127.0.0.1", 0)) as gone:
        free = gone.getsockname()[1]
    assert not list(guard._port(replace(wanted, port=free)))


def test_memory_that_is_not_there_is_told_with_the_sum(wanted: Guard) -> None:
    (finding,) = guard._memory(replace(wanted, memory=2**60), patience=0)
    assert "tiny-llama needs 1073741824.0 GiB to start (weights 0.1 + KV 0.1" in finding.what
    assert not list(guard._memory(replace(wanted, memory=0), patience=0))


def test_what_the_engine_will_ask_for_itself_counts_too(wanted: Guard) -> None:
    (finding,) = guard._memory(replace(wanted, memory=0, utilization=1.0), patience=0)
    assert "GiB to start" in finding.what


def test_a_vocabulary_that_is_not_there(wanted: Guard, tmp_path: Path) -> None:
    file = Vocabulary("o200k_base.tiktoken", "fb374d", 3, "0" * 64)
    (finding,) = guard._vocabularies(replace(wanted, vocabularies=Vocabularies(str(tmp_path / "none"), (file,))))
    assert "vocabularies in" in finding.what and "missing" in finding.what
    assert not list(guard._vocabularies(wanted))


def test_it_becomes_the_command(wanted: Guard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, wanted)
    monkeypatch.setattr(guard, "check", lambda _: iter(()))
    child = os.fork()
    if child == 0:  # pragma: no cover
        os._exit(guard.guard(str(path), ["/bin/sh", "-c", "exit 7"]))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert guard.guard(str(path), ["/nowhere/vllm"]) == guard.REFUSED
