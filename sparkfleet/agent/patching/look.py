"""From a directory to the state of every patch in it, without writing anything."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from . import edits, store
from .files import Aim, File, recognise
from .precedence import judge
from .records import Distribution, installed
from .shapes import Patch, PatchSet, Row, State, Target, Verdict


@dataclass
class Look:
    """Everything that was found: rows for people, files and aims for a change."""

    rows: list[Row] = field(default_factory=list)
    files: dict[str, File] = field(default_factory=dict)
    aims: dict[str, list[Aim]] = field(default_factory=dict)


def look(site: Path, patches: PatchSet) -> Look:
    """The state of every patch of the set.

    Raises HostError when the directory or a record cannot be read.
    """
    names = {target.distribution for patch in patches.patches for target in patch.targets}
    names |= {name for p in patches.patches if p.precedence for name in (p.precedence.winner, p.precedence.loser)}
    there = installed(site, frozenset(names | set(patches.versions)))
    usable = {name: many[0] for name, many in there.items()}
    found = Look()
    for patch in patches.patches:
        for target in patch.targets:
            owner = usable.get(target.distribution)
            if owner and owner.lists(target.path):
                found.aims.setdefault(target.path, []).append((patch, target))
    kept = store.kept_originals(site)
    for path, aims in found.aims.items():
        owners = {target.distribution: usable[target.distribution] for _, target in aims}
        found.files[path] = recognise(site, path, aims, owners, kept)
    for patch in patches.patches:
        wrong = _wrong_versions(patch, patches.versions, there)
        found.rows += [_row(patch, Verdict("conflict", wrong))] if wrong else _rows(site, patch, found, usable)
    return found


def _rows(site: Path, patch: Patch, found: Look, there: Mapping[str, Distribution]) -> list[Row]:
    if patch.verdict:
        return [_row(patch, patch.verdict)]
    if patch.precedence:
        verdict = judge(site, patch.precedence, there, found.files)
        return [_row(patch, verdict, distribution=patch.precedence.winner)]
    rows = []
    for path, aims in found.aims.items():
        file = found.files[path]
        mine = [target for one, target in aims if one.id == patch.id]
        # Where two distributions own the path, the one whose bytes are there decides; if nobody's are, any will do.
        target = next((t for t in mine if t.distribution == file.owner), mine[0] if mine else None)
        if target:
            rows.append(_row(patch, _verdict(patch, target, file), target.distribution, path))
    told = [row for row in rows if row.state != "not-applicable"]
    return told or _unmatched(site, patch, there) or rows[:1] or [_row(patch, _nowhere(patch, there))]


def _verdict(patch: Patch, target: Target, file: File) -> Verdict:
    if file.data is None:
        return Verdict("missing", f"{file.problem}. Reinstall {file.owner}, then apply again")
    if file.original is None:
        return Verdict("conflict", file.problem)
    if target.when and not edits.contains(file.original, target.when):
        return Verdict("not-applicable", f"not in this release: the file has no `{target.when.strip()}`")
    for sign in target.upstreamed:
        if edits.contains(file.original, sign.text) == sign.present:
            return Verdict("upstreamed", sign.why)
    if patch.id in file.applied:
        return Verdict("applied", "")
    if not target.edits:
        return Verdict("not-applicable", patch.reason)
    try:
        edits.check(file.original, target.edits)
    except edits.EditError as error:
        return Verdict("conflict", f"this release has another shape than any that the patch knows: {error}")
    if file.earlier:
        return Verdict("pristine", "has the form of an earlier sparkfleet; apply brings it to this one")
    return Verdict("pristine", "")


def _row(patch: Patch, verdict: Verdict, distribution: str = "", path: str = "") -> Row:
    state: State = verdict.state
    reason = verdict.reason
    if state == "pristine" and not patch.wanted and patch.kind in ("not-needed", "refused"):
        state, reason = "not-needed", patch.reason
    return Row(
        patch.id, patch.title, patch.kind, patch.wanted, distribution, path, state, reason or patch.reason, patch.link
    )


def _unmatched(site: Path, patch: Patch, there: Mapping[str, Distribution]) -> list[Row]:
    """What cannot be told because a RECORD does not list what it should: never the same as "not there"."""
    for target in patch.targets:
        owner = there.get(target.distribution)
        if owner is None or any(one.lists(target.path) for one in there.values()):
            continue
        reason = owner.unreadable()
        if not reason and os.path.lexists(site / target.path):
            reason = (
                f"the file is there, but the RECORD of {owner.name} {owner.version} does not list it, so nobody can "
                f"say what it should be. Reinstall {owner.name} (pip install --force-reinstall --no-deps), then apply "
                f"again"
            )
        if reason:
            return [_row(patch, Verdict("conflict", reason), target.distribution, target.path)]
    return []


def _nowhere(patch: Patch, there: Mapping[str, Distribution]) -> Verdict:
    names = list(dict.fromkeys(target.distribution for target in patch.targets))
    present = [f"{name} {there[name].version}" for name in names if name in there]
    if present:
        return Verdict("not-applicable", f"{' and '.join(present)} has no such file")
    return Verdict("not-applicable", f"{' or '.join(names)} is not installed")


def _wrong_versions(patch: Patch, wanted: Mapping[str, str], there: Mapping[str, tuple[Distribution, ...]]) -> str:
    """Why the set is not made for what is installed, as far as this patch goes; empty when it is."""
    names = {target.distribution for target in patch.targets}
    if patch.precedence:
        names |= {patch.precedence.winner, patch.precedence.loser}
    for name in sorted(names):
        many = there.get(name, ())
        if len(many) > 1:
            versions = " and ".join(one.version for one in many)
            return (
                f"{name} is installed twice ({versions}): an installation was cut off. Reinstall it, then apply again"
            )
        if many and not _same(many[0].version, wanted.get(name, "")):
            made_for = f"{name} {wanted[name]}" if name in wanted else f"no {name} at all"
            return f"{name} {many[0].version} is installed, the patch set was made for {made_for}"
    return ""


def _same(installed_version: str, wanted: str) -> bool:
    # A local label (+cu130) says how it was built, not what it is; a set made for one build is made for that one.
    return installed_version == wanted or ("+" not in wanted and installed_version.split("+")[0] == wanted)
