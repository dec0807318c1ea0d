"""A build that is disturbed in every way leaves nothing half done, and the next run converges."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from lab.hosts import Lab
from tests.lab.conftest import HOME, LAB, Outcome, Spark, pyinfra

UNIT = "vllm-tiny-llama.service"
RELEASES = "/opt/sparkfleet/releases"
LOCK = "/run/sparkfleet.lock"


def deploy(spark: Spark, *arguments: str) -> Outcome:
    return pyinfra("deploy.py", "--limit", spark.name, *arguments)


def names(spark: Spark) -> set[str]:
    """Every path of the host's disk, apart from what these tests leave in /root."""
    return {line.split()[0] for line in spark.files() if not line.startswith("/root/")}


@pytest.fixture(scope="module")
def before() -> set[str]:
    """What was on the host before anything was deployed; filled when it has been booted."""
    return set()


@pytest.fixture(scope="module")
def spark(lab: Lab, sparks: list[Spark], before: set[str]) -> Iterator[Spark]:
    """A third host, fresh."""
    host = lab.up(3)[2]
    subprocess.run(lab.ssh(host, "sudo -n true"), check=True)
    before |= names(Spark(lab, host))
    yield Spark(lab, host)
    lab.down([host.name])


def left_behind(spark: Spark) -> str:
    """What a failed build left, apart from its log."""
    return spark.sh(f"ls -A {RELEASES}")


def lock_is_free(spark: Spark) -> bool:
    return spark.sh(f"test ! -e {LOCK} || flock --nonblock {LOCK} true && echo free || true") == "free"


def start(spark: Spark) -> subprocess.Popen[str]:
    """A deploy in a process group of its own, returned once the build is in its middle."""
    command = [sys.executable, "-m", "pyinfra", "-y", "inventory/lab.py", "deploy.py", "--limit", spark.name]
    run = subprocess.Popen(
        command,
        cwd=HOME,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "SPARKFLEET_LAB": LAB},
    )
    middle = f"ls -d {RELEASES}/.*.new/lib/python3.*/site-packages/torch 2>/dev/null || true"
    for _ in range(240):
        if run.poll() is None and spark.sh(middle):
            return run
        time.sleep(0.5)
    run.kill()
    pytest.fail(f"the build never got to its middle: {run.communicate()[0]}")


def wait_for(what: Callable[[], bool], seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.5)


def broken_wheelhouse(spark: Spark, break_it: str) -> str:
    """A copy of the wheelhouse by links, with one thing wrong in it."""
    spark.sh(
        "rm -rf /root/wheels && mkdir /root/wheels && ln -s /srv/sparkfleet/wheelhouse/*/*.whl /root/wheels/"
        f" && cd /root/wheels && {break_it}"
    )
    return "wheelhouse=/root/wheels"


def test_a_truncated_wheel_is_named_and_nothing_is_built(spark: Spark) -> None:
    data = broken_wheelhouse(spark, "w=$(ls certifi-*.whl) && cat $w | head -c 1000 > x && rm $w && mv x $w")
    run = deploy(spark, "--data", data)
    assert run.status != 0
    assert "certifi-" in run.said and "the bytes are not those of the lock" in run.said
    assert left_behind(spark) == ""
    assert "vllm-" not in spark.sh("systemctl list-unit-files --no-legend 'vllm-*' || true")


def test_missing_wheels_are_all_named_at_once(spark: Spark) -> None:
    run = deploy(spark, "--data", broken_wheelhouse(spark, "rm certifi-*.whl idna-*.whl"))
    assert run.status != 0
    assert "missing: certifi==" in run.said and "idna==" in run.said
    assert left_behind(spark) == ""


def test_a_full_disk_in_the_middle_is_told_and_cleared_away(spark: Spark) -> None:
    # Room enough when it is looked at before the build, taken by somebody else in its middle.
    spark.sh(f"mkdir -p {RELEASES} && mount -t tmpfs -o size=2600m none {RELEASES}")
    try:
        run = start(spark)
        spark.sh(f"dd if=/dev/zero of={RELEASES}/.filler bs=1M 2>/dev/null || true", timeout=300)
        said, _ = run.communicate(timeout=600)
        assert run.returncode != 0
        assert "is full: free room there" in said, said
        assert "Nothing was switched" in said
        assert left_behind(spark) == ".filler"
    finally:
        spark.sh(f"umount -l {RELEASES}")


def test_a_read_only_disk_is_told_before_anything_is_changed(spark: Spark) -> None:
    spark.sh("mount --bind /opt /opt && mount -o remount,bind,ro /opt")
    try:
        run = deploy(spark)
    finally:
        spark.sh("umount /opt")
    assert run.status != 0
    assert "is read-only" in run.said
    assert f"{spark.name}  blocked, nothing was changed" in run.said


def test_a_killed_control_process_ends_the_build_and_frees_the_lock(spark: Spark) -> None:
    run = start(spark)
    os.killpg(run.pid, signal.SIGKILL)
    wait_for(lambda: left_behind(spark) == "" and lock_is_free(spark))
    assert spark.sh("pgrep -f '[u]v pip install' || true") == ""


def test_an_interrupt_is_not_success(spark: Spark) -> None:
    run = start(spark)
    os.kill(run.pid, signal.SIGINT)
    said, _ = run.communicate(timeout=60)
    assert run.returncode == 130, said
    assert "Traceback" not in said
    wait_for(lambda: left_behind(spark) == "" and lock_is_free(spark))


def test_a_power_cut_leaves_a_release_that_is_never_used(lab: Lab, spark: Spark) -> None:
    run = start(spark)
    lab.crash(spark.host)
    run.communicate(timeout=120)
    assert run.returncode != 0
    lab.boot(spark.host)
    assert left_behind(spark) != "", "the half-built release is still there, for the next run to clear away"
    dry = pyinfra("deploy.py", "--limit", spark.name, "--dry", json_output=False)
    assert "its build did not end; build again" in dry.said


def test_a_cut_connection_ends_the_run_and_the_next_one_converges(lab: Lab, spark: Spark) -> None:
    run = start(spark)
    lab.cut(spark.host)
    try:
        said, _ = run.communicate(timeout=300)
    finally:
        lab.mend(spark.host)
    assert run.returncode != 0, said
    assert "Traceback" not in said
    final = deploy(spark)
    assert final.status == 0, final.said
    assert lock_is_free(spark)
    assert spark.process(UNIT)["ActiveState"] == "active"
    assert deploy(spark).totals["success"] == 0


def test_two_runs_at_once_one_waits_for_the_other(spark: Spark) -> None:
    spark.sh(f"systemctl stop {UNIT}")
    command = [sys.executable, "-m", "pyinfra", "-y", "inventory/lab.py", "deploy.py", "--limit", spark.name]
    both = [
        subprocess.Popen(command, cwd=HOME, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(2)
    ]
    said = [run.communicate(timeout=600)[0] for run in both]
    assert [run.returncode for run in both] == [0, 0], said
    assert any("waiting for another sparkfleet run (service" in text for text in said)
    assert spark.process(UNIT)["ActiveState"] == "active"


@pytest.mark.parametrize("break_it", ["rm -f {}", "printf '{{' > {}", 'sed -i \'s/"schema": 1/"schema": 99/\' {}'])
def test_a_receipt_that_is_lost_or_not_understood(spark: Spark, break_it: str) -> None:
    receipt = "/var/lib/sparkfleet/receipt.json"
    spark.sh(f"cp {receipt} /root/receipt.json && {break_it.format(receipt)}")
    run = deploy(spark)
    if break_it.startswith("rm"):
        assert run.status == 0, run.said
        assert deploy(spark).totals["success"] == 0
    else:
        assert run.status != 0
        assert "blocked, nothing was changed" in run.said and "receipt" in run.said
        spark.sh(f"cp /root/receipt.json {receipt}")
        assert deploy(spark).status == 0


def test_without_rights_or_python_it_says_so(spark: Spark) -> None:
    spark.sh("mv /etc/sudoers.d /etc/sudoers.off && mkdir /etc/sudoers.d")
    try:
        run = deploy(spark)
    finally:
        spark.sh("rm -r /etc/sudoers.d && mv /etc/sudoers.off /etc/sudoers.d")
    assert run.status != 0
    assert "sudo does not let spark become root" in run.said
    spark.sh("chmod 0 /usr/bin/python3.*")
    try:
        run = deploy(spark)
    finally:
        spark.sh("chmod 755 /usr/bin/python3.*")
    assert run.status != 0
    assert "python3" in run.said and "Traceback" not in run.said


def told(run: Outcome, word: str) -> list[str]:
    """What an uninstall says it will ``remove`` or ``keep``, or says it ``removed`` or ``kept``."""
    lines = re.sub(r"\x1b\[[0-9;]*m", "", run.said).splitlines()
    return [found[1] for line in lines if (found := re.search(rf"(?:\] | s  ){word} (.*)", line))]


def test_uninstalled_the_host_is_as_it_was_before_all_this(lab: Lab, spark: Spark, before: set[str]) -> None:
    assert deploy(spark).status == 0
    files, process = spark.files(), spark.process(UNIT)
    dry = pyinfra("tasks/uninstall.py", "--limit", spark.name, "--dry", json_output=False)
    assert f"remove {UNIT}" in dry.said and "remove release vllm-cpu-" in dry.said, dry.said
    assert spark.files() ^ files == set() and spark.process(UNIT) == process

    lab.set_scenario(spark.host, "no-devices")  # a Spark that is given back may be a broken one
    try:
        kept = pyinfra("tasks/uninstall.py", "--limit", spark.name, json_output=False)
    finally:
        lab.set_scenario(spark.host, "good")
    assert kept.status == 0, kept.said
    assert told(dry, "remove") == told(kept, "removed") and told(dry, "keep") == told(kept, "kept") != []
    left = names(spark) - before
    assert {path for path in left if not path.startswith(("/var/lib/sparkfleet", "/var/log/sparkfleet"))} == set()
    assert any(path.endswith("tiny-llama/model.safetensors") for path in left)
    assert "no such user" in spark.sh("id sparkfleet 2>&1 || true")
    assert before <= names(spark), "something that was not ours is gone"

    again = deploy(spark)  # what stayed is taken up again
    assert again.status == 0, again.said
    assert pyinfra("tasks/uninstall.py", "--limit", spark.name, json_output=False).status == 0
    nothing = pyinfra("tasks/uninstall.py", "--limit", spark.name, json_output=False)
    assert told(nothing, "keep") == told(kept, "kept") and "nothing more of sparkfleet is on this host" in nothing.said
    gone = pyinfra("tasks/uninstall.py", "--limit", spark.name, "--data", "uninstall_keeps=[]", json_output=False)
    assert gone.status == 0, gone.said
    assert names(spark) ^ before == set()
    nothing = pyinfra("tasks/uninstall.py", "--limit", spark.name, json_output=False)
    assert nothing.status == 0 and "nothing of sparkfleet is on this host" in nothing.said
