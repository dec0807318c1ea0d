"""An agent that nobody listens to any more ends, with its children, and undoes what was half done."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

AGENT = """
import subprocess, sys, time
from pathlib import Path
from sparkfleet.agent import lifeline
half = Path(sys.argv[1])
half.write_text("half done")
lifeline.watch()
lifeline.on_end(half.unlink)
child = subprocess.Popen(["sleep", "60"])
print(child.pid, flush=True)
time.sleep(60)
"""


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().split(") ")[1].startswith("Z")


@pytest.mark.parametrize("how", ["the reader is gone", "SIGTERM", "SIGHUP"])
def test_it_ends_with_its_children_and_undoes(tmp_path: Path, how: str) -> None:
    half = tmp_path / "half"
    agent = subprocess.Popen([sys.executable, "-c", AGENT, str(half)], stdout=subprocess.PIPE, text=True)
    assert agent.stdout
    child = int(agent.stdout.readline())
    if how == "the reader is gone":
        agent.stdout.close()
    else:
        agent.send_signal(getattr(__import__("signal"), how))
    assert agent.wait(timeout=10) == 75
    assert not half.exists()
    for _ in range(50):
        if gone(child):
            break
        time.sleep(0.1)
    assert gone(child)


def test_it_goes_on_while_somebody_listens(tmp_path: Path) -> None:
    agent = subprocess.Popen([sys.executable, "-c", AGENT, str(tmp_path / "half")], stdout=subprocess.PIPE, text=True)
    assert agent.stdout
    agent.stdout.readline()
    with pytest.raises(subprocess.TimeoutExpired):
        agent.wait(timeout=1)
    agent.terminate()
    agent.wait(timeout=10)
