"""What status says of a real engine: at work, halted, started otherwise, started by hand; and of edited files."""

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.lab.conftest import HOME, Spark, pyinfra

pytestmark = pytest.mark.long

UNIT = "vllm-tiny-llama.service"
ENVIRONMENT = "/etc/sparkfleet/tiny-llama.env"
DROP_IN = f"/etc/systemd/system/{UNIT}.d"

#: Keeps three requests of 2,000 tokens under way.
WORK = """
import json, threading, urllib.request

def ask():
    body = {"model": "tiny-llama", "max_tokens": 2000, "ignore_eos": True, "prompt": "x"}
    while True:
        request = urllib.request.Request("http://127.0.0.1:8000/v1/completions", json.dumps(body).encode(),
            {"Content-Type": "application/json"})
        urllib.request.urlopen(request).read()
for _ in range(3):
    threading.Thread(target=ask).start()
"""


@pytest.fixture(scope="module")
def spark(sparks: list[Spark]) -> Spark:
    """A host that serves."""
    run = pyinfra("deploy.py", "--limit", sparks[0].name)
    assert run.status == 0, run.said
    return sparks[0]


def status(spark: Spark) -> dict[str, Any]:
    """The host's part of the document, which is the only thing on standard output."""
    run = pyinfra("tasks/status.py", "--limit", spark.name)
    assert run.status == 0, run.said
    return dict(run.results["hosts"][spark.name])


def recipe(spark: Spark) -> dict[str, Any]:
    (one,) = status(spark)["recipes"]
    return dict(one)


def drift(spark: Spark) -> list[str]:
    return [f"{one['thing']}: {one['cause']}; {one['remedy']}" for one in status(spark)["drift"]]


def test_idle_is_nought_and_costs_one_login(spark: Spark) -> None:
    before = spark.sessions()
    found = recipe(spark)
    assert spark.sessions() == before + 1
    assert (found["state"], found["running"], found["waiting"], found["kv_use"]) == ("serving", 0, 0, 0.0)
    assert found["passed"] and found["since"] > 0 and found["verified"] > 0 and found["tokens_per_second"] > 0
    assert drift(spark) == []


def test_requests_that_run_are_counted(spark: Spark) -> None:
    spark.sh(f"cat > /root/work.py <<'E'\n{WORK}E\nsystemd-run --quiet --unit=work --collect python3 /root/work.py")
    try:
        for _ in range(20):
            if (found := recipe(spark))["running"]:
                break
            time.sleep(0.5)
    finally:
        spark.sh("systemctl stop work.service; rm /root/work.py")
    assert found["state"] == "serving" and 1 <= found["running"] <= 3 and 0 < found["kv_use"] < 1, found


@pytest.mark.parametrize("which", ["the server", "its engine core"])
def test_a_halted_engine_is_not_answering(spark: Spark, which: str) -> None:
    pid = spark.process(UNIT)["MainPID"]
    if which == "its engine core":
        pid = spark.sh("pgrep -f VLLM::EngineCore")
    spark.sh(f"kill -STOP {pid}")
    try:
        found = recipe(spark)
    finally:
        spark.sh(f"kill -CONT {pid}")
    assert found["state"] == "not answering" and f"process {pid} was halted" in found["detail"], found
    assert found["running"] is None


def test_a_file_edited_on_the_host_and_settings_changed_here_are_told_apart(spark: Spark) -> None:
    spark.sh(f"cp -p {ENVIRONMENT} /root/env && echo '# edited' >> {ENVIRONMENT}")
    try:
        (edited,) = drift(spark)
    finally:
        spark.sh(f"cp -p /root/env {ENVIRONMENT}")
    assert edited.startswith(f"{ENVIRONMENT}: edited on the host, ") and edited.endswith("a deploy would write it")
    other = json.dumps({"tiny-llama": {"flags": {"max-num-seqs": 3}}})
    run = pyinfra("tasks/status.py", "--limit", spark.name, "--data", f"recipe_overrides={other}")
    found = {one["thing"]: one["cause"] for one in run.results["hosts"][spark.name]["drift"]}
    assert found[UNIT].startswith("runs from other settings: what is wanted has changed since "), found


def test_a_unit_that_a_drop_in_starts_otherwise(spark: Spark) -> None:
    command = spark.sh(f"systemctl cat {UNIT} | sed -n '/^ExecStart=/,/[^\\\\]$/p'")
    text = f"[Service]\nExecStart=\n{command} \\\n    --max-num-seqs=2\n"
    spark.sh(f"mkdir -p {DROP_IN} && cat > {DROP_IN}/by-hand.conf <<'E'\n{text}E\nsystemctl daemon-reload")
    spark.sh(f"systemctl restart {UNIT}", timeout=400)
    found, differs = recipe(spark), drift(spark)
    assert found["state"] == "differs" and found["passed"] is None, found
    assert "was not started with the unit's command" in differs[0] and "found --max-num-seqs=2" in differs[0]
    assert f"systemctl cat {UNIT}" in differs[0]
    spark.sh(f"rm -r {DROP_IN} && systemctl daemon-reload")


def test_an_engine_started_by_hand_on_its_port(spark: Spark) -> None:
    argv = spark.sh(f"tr '\\0' '\\n' < /proc/{spark.process(UNIT)['MainPID']}/cmdline").splitlines()
    by_hand = shlex.join([*argv, "--api-key=not-to-be-shown", "--max-num-seqs=2"])
    spark.sh(f"systemctl stop {UNIT}")
    spark.sh(
        f"systemd-run --quiet --unit=hand --collect --uid=sparkfleet --property=EnvironmentFile={ENVIRONMENT} {by_hand}"
    )
    try:
        for _ in range(240):
            if spark.sh("ss -ltnH sport = :8000"):
                break
            time.sleep(1)
        seen = status(spark)
    finally:
        spark.sh(f"systemctl stop hand.service; systemctl start {UNIT}", timeout=400)
    assert [one["state"] for one in seen["recipes"]] == ["by hand"], seen["recipes"]
    first = seen["drift"][0]
    assert "of hand.service listens on port 8000" in first["cause"] and "--max-num-seqs=2" in first["cause"]
    assert "--api-key=***" in first["cause"] and "not-to-be-shown" not in json.dumps(seen)
    assert seen["verdict"] == "blocked" and first["remedy"] == "a deploy would stop at it: end that process first"


def test_watching_goes_on_without_a_terminal_and_leaves_a_page(spark: Spark, tmp_path: Path) -> None:
    page = tmp_path / "status.html"
    command = [
        sys.executable,
        "-c",
        "from sparkfleet.cli import main; main()",
        "status",
        str(HOME / "inventory/lab.py"),
    ]
    with subprocess.Popen(
        [*command, "--watch", "1", "--html", str(page), "--", "--limit", spark.name],
        cwd=HOME,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"COLUMNS": "80"},
    ) as watching:
        assert watching.stdout
        looks = 0
        for line in watching.stdout:
            assert "\x1b" not in line and len(line) <= 81
            looks += line.startswith("1 host: ")
            if looks == 2:
                break
        watching.send_signal(2)
    assert watching.returncode == 0
    assert spark.name in page.read_text(encoding="utf-8")
