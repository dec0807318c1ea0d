"""The least that SSH can do: for each host of an inventory one paramiko connection, one exec of what a deploy asks.

Used by ``rerun.py``; no pyinfra in it. All hosts at once, as many threads as pyinfra has greenlets.
"""

import os
import runpy
import shlex
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import paramiko

from sparkfleet.agent.__main__ import ANSWER
from sparkfleet.bundle import installed_agent


def ask(data: dict[str, Any], question: str) -> None:
    """Log in, ask, read the answer."""
    client = paramiko.SSHClient()
    client.load_host_keys(data["ssh_known_hosts_file"])
    client.connect(
        data["ssh_hostname"],
        port=data["ssh_port"],
        username=data["ssh_user"],
        key_filename=data["ssh_key"],
        allow_agent=False,
        look_for_keys=False,
    )
    stdin, stdout, _ = client.exec_command(f"sudo -H -n sh -c {shlex.quote(installed_agent('observe'))}")
    stdin.write(question + "\n")
    stdin.channel.shutdown_write()
    assert ANSWER in stdout.read().decode(), "the agent did not answer"
    client.close()


if __name__ == "__main__":
    _, inventory, question = sys.argv
    hosts = [data for _, data in runpy.run_path(inventory)["sparks"]]
    with ThreadPoolExecutor(min(20 * (os.cpu_count() or 1), len(hosts))) as pool:
        list(pool.map(lambda data: ask(data, question), hosts))
