"""SSH to lab hosts: one key per lab, each host's own host key known beforehand, so that nothing ever asks."""

import os
from pathlib import Path

from lab.cache import caller
from lab.shell import call
from lab.state import Host, hosts, lab_dir

USER = "spark"


def key(lab: str) -> Path:
    """Where the private key to a lab's hosts is."""
    return lab_dir(lab) / "key"


def ensure_key(lab: str) -> None:
    """Make the lab's key, belonging to who asked for the lab, unless it is there."""
    path = key(lab)
    if not path.with_suffix(".pub").exists():
        make_key(path, f"sparkfleet lab {lab}")
        for part in (path, path.with_suffix(".pub")):
            os.chown(part, *caller())


def make_key(path: Path, comment: str) -> str:
    """A fresh ed25519 pair at ``path``; returns the public half."""
    path.unlink(missing_ok=True)
    call(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", path])
    return path.with_suffix(".pub").read_text()


def known_hosts(lab: str) -> Path:
    return lab_dir(lab) / "known_hosts"


def write_known_hosts(lab: str) -> None:
    lines = [f"{host.address} {' '.join(host.host_key.split()[:2])}\n" for host in hosts(lab) if host.host_key]
    fresh = known_hosts(lab).with_suffix(".new")
    fresh.write_text("".join(lines))
    fresh.rename(known_hosts(lab))


def ssh_command(host: Host, *command: str) -> list[str]:
    """argv that logs in to a host as ``spark``, whatever this machine's own SSH configuration says."""
    options = ["IdentitiesOnly=yes", f"UserKnownHostsFile={known_hosts(host.lab)}", "StrictHostKeyChecking=yes"]
    argv = ["ssh", "-F", "none", "-i", str(key(host.lab))]
    for option in (*options, "LogLevel=ERROR", "ConnectTimeout=5"):
        argv += ["-o", option]
    return [*argv, f"{USER}@{host.address}", *command]
