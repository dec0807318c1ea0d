"""Two distributions that own the same paths with different bytes: which of them was written last."""

from collections.abc import Mapping
from pathlib import Path

from .files import File
from .records import Digest, Distribution
from .shapes import Precedence, Verdict


def judge(site: Path, rule: Precedence, there: Mapping[str, Distribution], patched: Mapping[str, File]) -> Verdict:
    """Whether every shared file is the winner's. ``patched`` are files whose owner is known already."""
    winner, loser = there.get(rule.winner), there.get(rule.loser)
    if loser is None:
        return Verdict("not-applicable", f"{rule.loser} is not installed")
    for one in (winner, loser):
        if one and (reason := one.unreadable()):
            return Verdict("conflict", reason)
    remedy = f"pip install --force-reinstall --no-deps {rule.winner}=={loser.version}"
    if winner is None:
        return _alone(site, rule, loser, remedy)
    if winner.version != loser.version:
        return Verdict("conflict", f"{rule.winner} {winner.version} over {rule.loser} {loser.version}: {remedy}")
    theirs = loser.digests()
    shared = {path: digest for path, digest in winner.digests().items() if digest and theirs.get(path)}
    differing = {path: digest for path, digest in shared.items() if digest != theirs[path]}
    return _compare(site, rule, shared, differing, theirs, patched, remedy)


def _compare(
    site: Path,
    rule: Precedence,
    shared: Mapping[str, Digest],
    differing: Mapping[str, Digest],
    theirs: Mapping[str, Digest | None],
    patched: Mapping[str, File],
    remedy: str,
) -> Verdict:
    gone = [path for path in shared if not (site / path).is_file()]
    if gone:
        return Verdict("missing", f"{len(gone)} of {len(shared)} shared files are gone, {gone[0]} among them: {remedy}")
    losing: list[str] = []
    strange: list[str] = []
    for path, digest in differing.items():
        owner = patched[path].owner if path in patched and patched[path].original is not None else ""
        if owner == rule.winner or (not owner and _is(site / path, digest)):
            continue
        (losing if owner == rule.loser or _is(site / path, theirs[path]) else strange).append(path)
    if strange:
        return Verdict("conflict", f"{strange[0]} is neither {rule.winner}'s nor {rule.loser}'s: {remedy}")
    if losing:
        return Verdict(
            "pristine", f"{len(losing)} of {len(differing)} files are {rule.loser}'s, e.g. {losing[0]}: {remedy}"
        )
    if not differing:
        return Verdict("upstreamed", "the two distributions share no file that differs")
    return Verdict("applied", f"all {len(differing)} files that differ are {rule.winner}'s")


def _alone(site: Path, rule: Precedence, loser: Distribution, remedy: str) -> Verdict:
    gone = [path for path, digest in loser.digests().items() if digest and not (site / path).is_file()]
    if gone:
        return Verdict("missing", f"{len(gone)} files of {rule.loser} are gone, {gone[0]} among them: {remedy}")
    return Verdict("pristine", f"{rule.winner} is not installed, {rule.loser} alone miscompiles for SM121: {remedy}")


def _is(path: Path, digest: Digest | None) -> bool:
    return digest is not None and digest.is_of(path)
