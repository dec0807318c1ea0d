"""``sparkfleet status``: what the task's document says, once or again and again, with and without a terminal."""

import json
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sparkfleet.cli import main, status
from sparkfleet.status.shapes import FleetStatus, HostStatus, RecipeStatus

HOME = Path(__file__).resolve().parents[2]
DOCUMENT = FleetStatus(
    1, "r1", 0.0, {"spark-01": HostStatus("ready", recipes=(RecipeStatus("gpt-oss-120b", "vllm-0.23.0", "serving"),))}
)


class Pyinfra:
    """Answers in the place of pyinfra, one answer a run; then the user is tired of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: FleetStatus | str) -> None:
        self.answers, self.commands, self.slept = list(answers), list[tuple[str, ...]](), list[float]()
        monkeypatch.chdir(HOME)
        monkeypatch.setattr(status.subprocess, "run", self.run)
        monkeypatch.setattr(status.time, "sleep", self.sleep)

    def run(self, command: tuple[str, ...], **_: object) -> "subprocess.CompletedProcess[str]":
        self.commands.append(command)
        answer = self.answers.pop(0)
        if isinstance(answer, str):
            return subprocess.CompletedProcess(command, 1, "", answer)
        return subprocess.CompletedProcess(command, 0, json.dumps(asdict(answer), indent=2), "--> Connecting...\n")

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if not self.answers:
            raise KeyboardInterrupt


def run(tmp_path: Path, *options: str) -> Result:
    inventory = tmp_path / "sparks.py"
    inventory.write_text('sparks = [("a", {"recipes": [], "ssh_hostname": "127.0.0.1", "ssh_port": 1})]')
    return CliRunner().invoke(main, ["status", str(inventory), *options])


def test_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pyinfra = Pyinfra(monkeypatch, DOCUMENT)
    shown = run(tmp_path, "--html", str(tmp_path / "page.html"), "--", "--limit", "spark-01")
    assert shown.exit_code == 0 and "gpt-oss-120b" in shown.output and "\x1b" not in shown.output
    assert "gpt-oss-120b" in (tmp_path / "page.html").read_text()
    assert pyinfra.commands[0][3:] == (
        "--json",
        "-y",
        str(tmp_path / "sparks.py"),
        "tasks/status.py",
        "--limit",
        "spark-01",
    )
    assert pyinfra.slept == []


def test_a_page_that_cannot_be_written_takes_nothing_from_what_was_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Pyinfra(monkeypatch, DOCUMENT)
    shown = run(tmp_path, "--html", str(tmp_path / "nowhere" / "page.html"))
    assert shown.exit_code != 0 and "gpt-oss-120b" in shown.output and "cannot be written" in shown.output


def test_again_and_again_without_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    away = "--> Connecting to hosts...\n    [a] Could not connect (no route)\n--> pyinfra error: No hosts remaining!\n"
    pyinfra = Pyinfra(monkeypatch, DOCUMENT, away, DOCUMENT)
    shown = run(tmp_path, "--watch", "5")
    assert shown.exit_code == 0 and pyinfra.slept == [5.0] * 3
    assert shown.output.count("gpt-oss-120b") == 2 and "\x1b" not in shown.output
    assert "[a] Could not connect (no route)\npyinfra error: No hosts remaining!" in shown.output


def test_documents_line_by_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Pyinfra(monkeypatch, DOCUMENT, DOCUMENT)
    lines = run(tmp_path, "--watch", "5", "--json").output.splitlines()
    assert [json.loads(line)["hosts"]["spark-01"]["verdict"] for line in lines] == ["ready", "ready"]


def test_a_fleet_that_is_not_there_is_status_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the real pyinfra, which then never comes to the task."""
    monkeypatch.chdir(HOME)
    shown = run(tmp_path)
    assert shown.exit_code == 2
    assert "[a] Could not connect" in shown.output and "Traceback" not in shown.output


def test_it_is_run_beside_deploy_py(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = run(tmp_path)
    assert shown.exit_code == 2 and "change to the directory that holds deploy.py" in shown.output


@pytest.mark.parametrize("seconds", ["nan", "inf", "0", "-1", "often"])
def test_a_time_between_looks_that_is_none_is_refused(tmp_path: Path, seconds: str) -> None:
    refused = run(tmp_path, "--watch", seconds)
    assert refused.exit_code == 2 and "--watch" in refused.output
