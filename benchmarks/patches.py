"""Time of the patch set's status and apply, against the floor of reading and hashing the same files once.

    python -m benchmarks.patches                          the releases of the tests, from their cache
    python -m benchmarks.patches --site-packages DIR      any installation (it is copied, never changed)

All in one process, without the start of an interpreter, best of several runs: what a guard pays at each start of a
unit that runs in a warm agent. The floor reads every file that status must read (the records of the distributions,
the files that patches touch, and with CUTLASS DSL 4.4 or 4.5 every file that two distributions own) and hashes each
of the latter once.
"""

import argparse
import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from sparkfleet.agent.patching import PatchSet, apply, revert, status
from sparkfleet.agent.patching.records import installed
from sparkfleet.catalog.patches import Patch, load_patches
from sparkfleet.patchset import compile_set

#: name -> what is laid down, as the engine of that name has it
ENGINES = {
    "vllm 0.19.1": [("vllm", "0.19.1"), ("flashinfer-python", "0.6.9")],
    "vllm 0.23.0": [("vllm", "0.23.0"), ("flashinfer-python", "0.6.12")],
    "vllm 0.33.0": [("vllm", "0.33.0"), ("flashinfer-python", "0.7.2.post1")],
}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--site-packages", type=Path)
    arguments.add_argument("--runs", type=int, default=20)
    options = arguments.parse_args()
    print(f"Python {sys.version.split()[0]}, best of {options.runs} runs, milliseconds")
    print(f"{'':28}{'floor':>9}{'status':>9}{'ratio':>7}{'apply':>9}{'again':>9}{'revert':>9}{'MB':>7}")
    if options.site_packages:
        measure(str(options.site_packages)[-26:], options.site_packages, options.runs)
        return
    from tests.upstream.wheels import cache, cutlass, lay, site_packages

    with tempfile.TemporaryDirectory(dir=cache(), prefix="bench-") as scratch:
        for name, releases in ENGINES.items():
            measure(name, lay(Path(scratch) / name, releases), options.runs)
    measure("cutlass-dsl 4.4.2, cu13 last", site_packages(cutlass("4.4.2")), options.runs)


def measure(name: str, source: Path, runs: int) -> None:
    """Print one line for a copy of ``source``; the copy is hard-linked where it can be."""
    patches = load_patches()
    with tempfile.TemporaryDirectory(dir=source.parent, prefix="bench-") as scratch:
        site = Path(scratch).resolve() / "site-packages"
        shutil.copytree(source, site, symlinks=True, copy_function=os.link)
        wanted = _everything(site, patches)
        files, records = _read(site, wanted)
        floor = best(runs, lambda: _floor(files, records))
        look = best(runs, lambda: status(site, wanted))
        change = best(1, lambda: apply(site, wanted))
        again = best(runs, lambda: apply(site, wanted))
        back = best(1, lambda: revert(site, wanted))
    size = sum(len(path.read_bytes()) for path in [*(source / f.relative_to(site) for f in files)]) / 1e6
    numbers = f"{floor:9.2f}{look:9.2f}{look / floor:7.2f}{change:9.1f}{again:9.2f}{back:9.1f}{size:7.1f}"
    print(f"{name:28}{numbers}", flush=True)


def best(runs: int, act: Callable[[], object]) -> float:
    """Milliseconds of the quickest run."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        act()
        times.append(time.perf_counter() - start)
    return 1000 * min(times)


def _everything(site: Path, patches: tuple[Patch, ...]) -> PatchSet:
    """Every patch that has an edit which applies here, so that apply writes as much as it ever could."""
    versions = {name: many[0].version for name, many in installed(site, _names(patches)).items()}
    edited = [patch.id for patch in patches if any(target.edits for target in patch.targets)]
    return compile_set(patches, versions, edited, "benchmark")


def _names(patches: tuple[Patch, ...]) -> frozenset[str]:
    return frozenset(name for patch in patches for name in patch.distributions)


def _read(site: Path, patches: PatchSet) -> tuple[list[Path], list[Path]]:
    """The files that status hashes, and the records that it reads to know what they should be."""
    there = {name: many[0] for name, many in installed(site, frozenset(patches.versions)).items()}
    paths = {
        target.path
        for patch in patches.patches
        for target in patch.targets
        if target.distribution in there and there[target.distribution].lists(target.path)
    }
    for patch in patches.patches:
        if patch.precedence and not patch.verdict and patch.precedence.winner in there:
            winner = there[patch.precedence.winner].digests()
            loser = there[patch.precedence.loser].digests()
            paths |= {path for path, digest in winner.items() if digest and digest != loser.get(path, digest)}
    # The RECORD counts where status must read it: where the distribution could have a patch's file.
    named = {target.distribution for patch in patches.patches for target in patch.targets}
    named |= {name for p in patches.patches if p.precedence for name in (p.precedence.winner, p.precedence.loser)}
    records = [one.directory / name for one in there.values() if one.name in named for name in ("RECORD", "METADATA")]
    return [site / path for path in sorted(paths)], records


def _floor(files: list[Path], records: list[Path]) -> None:
    for path in records:
        path.read_bytes()
    for path in files:
        hashlib.sha256(path.read_bytes()).digest()


if __name__ == "__main__":
    main()
