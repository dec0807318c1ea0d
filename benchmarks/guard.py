"""Time of a guard, from the start of its interpreter to that of the engine: what it adds to every start of a unit.

    python -m benchmarks.guard HOST [--runs N]     on a host of the running lab, its unit stopped
    python3 guard.py --here                        on a Spark, as root: copy this one file there

The guard of the host's first recipe is run as its unit runs it, as the unit's user and with /bin/true for the engine;
the floor is the same interpreter doing nothing. The release is the real one with its whole closure. CPU is what all
processors spent on it, nvidia-smi included: a busy machine stretches the wall time, and hardly that.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

AGENT = "/opt/sparkfleet/agent.pyz"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("host", nargs="?")
    arguments.add_argument("--here", action="store_true")
    arguments.add_argument("--runs", type=int, default=20)
    options = arguments.parse_args()
    if options.here or not options.host:
        measure(options.runs)
        return
    from lab.hosts import DEFAULT, Lab

    lab = Lab(os.environ.get("SPARKFLEET_LAB", DEFAULT))
    script = Path(__file__).read_text(encoding="utf-8")
    command = ["python3", "-c", script, "--here", "--runs", str(options.runs)]
    print(lab.run(lab.host(options.host), command, timeout=600).stdout, end="")


def measure(runs: int) -> None:
    """Print one line: milliseconds of the floor and of the guard, and what is guarded."""
    guard = next(iter(sorted(Path("/etc/sparkfleet").glob("*.guard"))), None)
    if guard is None:
        sys.exit("/etc/sparkfleet: no guard here. Deploy a recipe first.")
    as_user = ["runuser", "-u", "sparkfleet", "--", "/usr/bin/python3", "-I"]
    floor = [timed([*as_user, "-c", "pass"]) for _ in range(runs)]
    times = [timed([*as_user, AGENT, "guard", str(guard), "/bin/true"]) for _ in range(runs)]
    files = sum(1 for _ in Path("/opt/sparkfleet/releases").glob("*/lib/python3.*/site-packages/*.dist-info"))
    print(f"{guard.stem}, {files} distributions, Python {sys.version.split()[0]}, {runs} runs, milliseconds")
    for name, found in (("floor", floor), ("guard", times)):
        wall, cpu = zip(*found, strict=True)
        print(
            f"  {name}  wall: best {min(wall):4.0f}, median {statistics.median(wall):4.0f}   CPU: best {min(cpu):4.0f}"
        )


def timed(command: list[str]) -> tuple[float, float]:
    """Milliseconds on the wall and of the processors for ``command``, which must end well."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        sys.exit(done.stderr.strip())
    return 1000 * wall, 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


if __name__ == "__main__":
    main()
