"""The running system of a host: real systemd under systemd-nspawn, found and ended by what the kernel says.

Everything a host runs is in its network namespace, whose file only this lab has pinned. That, not a
name or a remembered process id, is how its processes are told from all others.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from lab import access, disk
from lab.shell import environment
from lab.state import Host, Place
from sparkfleet.errors import UserError

BOOT_SECONDS = 90.0  # an idle machine needs 3; a busy one with many hosts far more
START_SECONDS = 15.0  # until its first process exists
STOP_SECONDS = 20.0
ENVIRONMENT = ("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8")
KEEP = 'while "$@"; [ $? -eq 133 ]; do :; done'  # 133: the host asked for a reboot
NSPAWN = Path("/run/systemd/nspawn")  # where it keeps locks and the like, while a machine runs
POWEROFF = signal.SIGRTMIN + 4  # systemd(1): "power off" to process 1


def start(host: Host) -> None:
    """Switch a host on; returns when its first process runs. ``wait_until_ready`` tells when it is up."""
    nspawn = ["systemd-nspawn", "--quiet", "--keep-unit", "--register=no", "--settings=no", "--boot"]
    nspawn += ["--link-journal=no", "--resolv-conf=off", "--timezone=off", "--console=read-only"]
    nspawn += [f"--machine={_unit(host.place)}", f"--hostname={host.name}"]
    nspawn += ["--capability=CAP_NET_ADMIN", *disk.nspawn_arguments(host)]
    # Entered from outside, not given to nspawn: so the host's /sys shows its own interfaces.
    # In a session of its own and nobody's child: it outlives this command.
    outside = ["setsid", "--fork", "nsenter", f"--net={host.place.netns}", "sh", "-c", KEEP, "sh"]
    argv = [*outside, *_in_own_cgroup(host.place), *nspawn]
    with host.place.console.open("ab") as console:
        subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=console, stderr=console, env=environment(), check=True)
    _wait_for_leader(host)


def wait_until_ready(host: Host, cancelled: Callable[[], bool] = lambda: False) -> str:
    """Wait for systemd to settle and sshd to answer; returns a warning about failed units, or nothing."""
    deadline = time.monotonic() + BOOT_SECONDS
    state = "off"
    while time.monotonic() < deadline and not cancelled():
        state = system_state(host)
        if state in ("running", "degraded") and _ssh_answers(host):
            break
        time.sleep(0.1)
    else:
        raise _not_up(host, f"did not come up within {BOOT_SECONDS:.0f} s: its system is {state}")
    if state == "running":
        return ""
    failed = run(host, ["systemctl", "--failed", "--plain", "--no-legend"]).stdout.splitlines()
    return f"{host.name} is up, but these units failed: {', '.join(line.split()[0] for line in failed)}"


def system_state(host: Host) -> str:
    """systemd's word for it (``running``, ``degraded``, ``starting``...), or ``off``."""
    try:
        return run(host, ["systemctl", "is-system-running"], check=False).stdout.strip() or "starting"
    except UserError:
        return "off"


def run(
    host: Host, argv: Sequence[str], *, check: bool = True, stdin: str = "", timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run a command as root inside a running host, without SSH: a look at it that leaves no session in its journal.

    Raises UserError if the host is off or, unless ``check`` is false, if the command fails. What it starts
    belongs to no unit of the host.
    """
    process = leader(host.place)
    if process is None:
        raise UserError(f"{host.name} is off.")
    enter = ["nsenter", "--target", str(process), "--all", "env", "-i", "-C", "/", *ENVIRONMENT]
    done = subprocess.run(
        [*enter, *argv], input=stdin, capture_output=True, text=True, errors="replace", timeout=timeout
    )
    if check and done.returncode != 0:
        said = done.stderr.strip() or done.stdout.strip()
        raise UserError(f"`{' '.join(argv)}` in {host.name} failed with {done.returncode}: {said}")
    return done


def leader(place: Place) -> int | None:
    """Process 1 of a host as this machine numbers it; None if the host is off."""
    for process in processes(place):
        if _inner_ids(process)[1:] == ["1"]:
            return process
    return None


def processes(place: Place) -> list[int]:
    """Every living process in a host's network namespace: its own, and the one that holds it from outside."""
    if not os.path.ismount(place.netns):
        return []
    wanted, found = place.netns.stat(), []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                have = (entry / "ns/net").stat()
            except OSError:
                continue  # ended, or is a zombie
            if (have.st_dev, have.st_ino) == (wanted.st_dev, wanted.st_ino):
                found.append(int(entry.name))
    return sorted(found)


def stop(place: Place) -> None:
    """Switch a host off in good order if it can be, at once if it cannot."""
    process = leader(place)
    if process is not None:
        _signal(process, POWEROFF)
        _wait_for_end(place, STOP_SECONDS)
    kill(place)


def kill(place: Place) -> None:
    """Take the power away: nothing in the host gets to say goodbye.

    What it had written is on its disk, synced or not: the kernel under it lives on. (A real power loss may
    also lose what was not yet synced; that is not reproduced here.)
    """
    process = leader(place)
    if process is not None:
        _signal(process, signal.SIGKILL)  # the kernel ends everything inside with it; nspawn then tidies up
        _wait_for_end(place, 2)
    for process in processes(place):
        _signal(process, signal.SIGKILL)
    _wait_for_end(place, STOP_SECONDS)
    if left := processes(place):
        raise UserError(f"{place.name}: processes {left} do not end, even when killed. Retry; if they stay, reboot.")
    _tidy(place)


def leave() -> None:
    """Remove nspawn's own directories if no machine uses them; for when the last lab has gone."""
    for directory in (NSPAWN / "propagate", NSPAWN / "locks", NSPAWN):
        _rmdir(directory)


def _wait_for_leader(host: Host) -> None:
    deadline = time.monotonic() + START_SECONDS
    begun = False
    while leader(host.place) is None:
        alive = bool(processes(host.place))
        if (begun and not alive) or time.monotonic() > deadline:
            raise _not_up(host, "could not be started")
        begun = begun or alive
        time.sleep(0.02)


def _not_up(host: Host, what: str) -> UserError:
    last = host.place.console.read_text(errors="replace").strip().splitlines()[-3:]
    return UserError(f"{host.name} {what}. The end of {host.place.console}: {' / '.join(last) or '(empty)'}")


def _wait_for_end(place: Place, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while processes(place) and time.monotonic() < deadline:
        time.sleep(0.05)


def _signal(process: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, number)


def _inner_ids(process: int) -> list[str]:
    """Ids of a process from this machine's pid namespace inwards."""
    try:
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return line.split()[1:]
    except OSError:
        pass
    return []


def _ssh_answers(host: Host) -> bool:
    login = access.ssh_command(host, "true")
    return subprocess.run(login, capture_output=True, stdin=subprocess.DEVNULL).returncode == 0


# systemd-nspawn --keep-unit puts the host in a child of the cgroup it is started in. Each host needs one of
# its own there, or their systemds would share a tree and end each other's services.


def _in_own_cgroup(place: Place) -> list[str]:
    if Path("/run/systemd/system").is_dir():  # then cgroups are systemd's to give
        return ["systemd-run", "--scope", "--quiet", "--collect", "--property=Delegate=yes", f"--unit={_unit(place)}"]
    for group in _cgroups(place):
        group.mkdir(exist_ok=True)
    enter = 'for g in $CGROUPS; do echo $$ > "$g/cgroup.procs"; done; unset CGROUPS; exec "$@"'
    return ["env", f"CGROUPS={' '.join(map(str, _cgroups(place)))}", "sh", "-c", enter, "sh"]


def _unit(place: Place) -> str:
    return f"sparklab-{place.lab}-{place.name}"


def _cgroups(place: Place) -> list[Path]:
    """The host's place in the hierarchies systemd uses, on cgroup v1 (with or without v2 beside it) and on v2."""
    top = Path("/sys/fs/cgroup")
    trees = [t for t in (top / "systemd", top / "unified", top) if (t / "cgroup.procs").exists()]
    return [tree / _unit(place) for tree in trees]


def _tidy(place: Place) -> None:
    """Remove what nspawn leaves on this machine, more so when it was killed."""
    for group in _cgroups(place):
        for path, _, _ in os.walk(group, topdown=False):
            _rmdir(Path(path))
    _rmdir(NSPAWN / "propagate" / _unit(place))
    if place.root.exists():
        there = place.root.stat()
        (NSPAWN / "locks" / f"inode-{there.st_dev:x}:{there.st_ino}").unlink(missing_ok=True)
    place.root.with_name(f".#{place.root.name}.lck").unlink(missing_ok=True)


def _rmdir(path: Path) -> None:
    with contextlib.suppress(OSError):  # not there, or another's
        path.rmdir()
