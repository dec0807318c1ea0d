"""What the real engines take: bytes and files on disk, time to build, to check the seal, to read every byte.

    sudo .venv/bin/python -m benchmarks.closure [ENGINE ...]        those of the catalog with a lock, when none is named

Each is built for a Spark on whatever machine this is, from wheels in the cache (downloaded first, gigabytes), and kept
below the cache until the next ``make test-engines``. Times of a release that was there already are not known: ``-``.
The seal is what a unit's guard checks at each start (best of ten); deep is ``tasks/verify.py --data deep=true``. Floor:
the same files read and hashed by one thread, in the page cache, nothing compared.
"""

import argparse
import hashlib
import os
import platform
import time
from collections.abc import Callable

from sparkfleet.agent.releases import deep, release
from sparkfleet.catalog.engines import ENGINES, engine, wheels_size
from tests.engines.closure import Closure, closure

RUNS = 10


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("engines", nargs="*")
    names = arguments.parse_args().engines or [
        path.stem for path in sorted(ENGINES.glob("*.yaml")) if (one := engine(path.stem)).pins and one.lock.exists()
    ]
    load = os.getloadavg()[0]
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {load:.1f} when it began")
    head = ("engine", "wheels GB", "disk GB", "files", "build s", "seal s", "guard ms", "deep s", "floor s")
    print("| " + " | ".join(head) + " |\n|" + " --- |" * len(head))
    for name in names:
        print("| " + " | ".join(row(closure(name))) + " |", flush=True)


def row(made: Closure) -> tuple[str, ...]:
    """The numbers of one engine."""
    guard = min(timed(lambda: release.state(made.path)) for _ in range(RUNS))
    began = time.perf_counter()
    wrong, files, _ = deep.check(made.path)
    deeply = time.perf_counter() - began
    if wrong:
        raise SystemExit(f"{made.path}: {len(wrong)} files are not what they must be: {wrong[0]}")
    return (
        f"`{made.engine.name}`",
        f"{wheels_size(made.engine.lock.read_text(encoding='utf-8')) / 1e9:.2f}",
        f"{release.read(made.path)['size'] / 1e9:.2f}",
        f"{files}",
        f"{made.built:.0f}" if made.built else "-",
        f"{made.sealed:.1f}" if made.sealed else "-",
        f"{1000 * guard:.0f}",
        f"{deeply:.0f}",
        f"{timed(lambda: floor(made)):.0f}",
    )


def timed(act: Callable[[], object]) -> float:
    """Seconds that it takes."""
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def floor(made: Closure) -> None:
    """Read and hash the bytes, no more."""
    for top, _, names in os.walk(made.site):
        for name in names:
            if not name.endswith(".pyc"):
                with open(f"{top}/{name}", "rb") as file:
                    hashlib.file_digest(file, "sha256")


if __name__ == "__main__":
    main()
