"""From the patch catalog and versions to what a host is told: ranges resolved, nothing left to interpret there."""

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from sparkfleet.agent.errors import HostError
from sparkfleet.agent.names import normal
from sparkfleet.agent.patching import shapes
from sparkfleet.agent.patching.records import installed
from sparkfleet.catalog import engines
from sparkfleet.catalog.patches import Patch, Standing, covers, known, load_patches
from sparkfleet.errors import UserError

_PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;\\]+)", re.MULTILINE)


def for_engine(name: str, site: Path | None = None, patches: Sequence[Patch] | None = None) -> shapes.PatchSet:
    """The patch set of an engine, for the versions that its lock pins.

    An engine that is only a name, like ``vllm-0.22.1``, pins vLLM; the rest is then what ``site`` has, as it is for an
    engine whose lock the user has yet to make. Raises UserError when the engine or one of its patches does not exist.
    """
    patches = patches or load_patches()
    if not (engines.ENGINES / f"{name}.yaml").is_file():
        return _for_name(name, site, patches)
    engine = engines.engine(name)
    if site and engine.pins and not engine.lock.exists():
        versions = {**_installed(site, patches), **engine.pins}
        return compile_set(patches, versions, (*required(patches, versions), *engine.patches), name)
    try:
        return for_lock(engine, engine.lock.read_text(encoding="utf-8"), patches)
    except OSError as error:
        raise UserError(f"{engine.lock}: cannot be read: {error.strerror or error}.") from None


def for_lock(engine: engines.Engine, lock: str, patches: Sequence[Patch] | None = None) -> shapes.PatchSet:
    """What is required for the versions that ``lock`` pins, and what the engine's file adds; empty without a GPU.

    Required patches need not be listed, because which they are follows from the lock. Raises UserError when a patch
    that the file names does not exist.
    """
    if not engine.patches and not engine.gpu:
        return shapes.PatchSet(shapes.SCHEMA, engine.name, {}, ())
    patches = patches or load_patches()
    versions = pinned(lock)
    return compile_set(patches, versions, (*required(patches, versions), *engine.patches), engine.name)


def _for_name(name: str, site: Path | None, patches: Sequence[Patch]) -> shapes.PatchSet:
    found = re.fullmatch(r"vllm-(\d+(?:\.\w+)+)(?:-cu\d+)?", name)
    if site is None or not found:
        engines.engine(name)  # says which there are
        raise UserError(f"engine {name!r} pins nothing but vLLM; name a site-packages directory.")
    versions = {**_installed(site, patches), "vllm": found[1]}
    return compile_set(patches, versions, required(patches, versions), name)


def for_directory(site: Path, also: Collection[str] = (), patches: Sequence[Patch] | None = None) -> shapes.PatchSet:
    """The patches that are required for what is installed in ``site``, and those of ``also``.

    Raises UserError when ``site`` is not a site-packages directory or holds nothing that a patch speaks of.
    """
    patches = patches or load_patches()
    versions = _installed(site, patches)
    return compile_set(patches, versions, (*required(patches, versions), *known(patches, also)), "installed")


def compile_set(
    patches: Sequence[Patch], versions: Mapping[str, str], wanted: Collection[str], name: str
) -> shapes.PatchSet:
    """What a host needs to know about ``patches`` at ``versions`` (normalised names), those of ``wanted`` marked.

    Raises UserError when a wanted patch does not exist or a version is none.
    """
    chosen = known(patches, wanted)
    relevant = {name for patch in patches for name in patch.distributions}
    return shapes.PatchSet(
        schema=shapes.SCHEMA,
        name=name,
        versions={name: versions[name] for name in sorted(relevant & set(versions))},
        patches=tuple(_compile(patch, versions, patch.id in chosen) for patch in patches),
    )


def required(patches: Sequence[Patch], versions: Mapping[str, str]) -> tuple[str, ...]:
    """The patches without which these versions are not right on SM121."""
    return tuple(
        patch.id
        for patch in patches
        if any(name in versions for name in patch.distributions) and _standing(patch, versions).class_ == "required"
    )


def _installed(site: Path, patches: Sequence[Patch]) -> dict[str, str]:
    names = frozenset(name for patch in patches for name in patch.distributions)
    try:
        there = installed(site, names)
    except HostError as error:
        raise UserError(str(error)) from None
    if not there:
        raise UserError(
            f"{site}: expected a site-packages directory with one of {', '.join(sorted(names))}; found none of them."
        )
    return {name: many[0].version for name, many in there.items()}


def pinned(lock: str) -> dict[str, str]:
    """Versions of a lock in the requirements format, by normalised name."""
    return {normal(name): version for name, version in _PIN.findall(lock)}


def _compile(patch: Patch, versions: Mapping[str, str], wanted: bool) -> shapes.Patch:
    standing = _standing(patch, versions)
    precedence = patch.precedence
    probe = patch.probe
    return shapes.Patch(
        id=patch.id,
        title=patch.title,
        link=patch.link,
        kind=standing.class_,
        reason=standing.reason,
        wanted=wanted,
        targets=_targets(patch, versions),
        precedence=shapes.Precedence(precedence.winner, precedence.loser) if precedence else None,
        verdict=_verdict(patch, versions),
        probe=shapes.Probe(probe.code, dict(probe.environment)) if probe else None,
    )


def _standing(patch: Patch, versions: Mapping[str, str]) -> Standing:
    version = next((versions[name] for name in patch.distributions if name in versions), None)
    covering = (one for one in patch.standing if version is not None and covers(one.versions, version))
    return next(covering, patch.standing[-1])


def _targets(patch: Patch, versions: Mapping[str, str]) -> tuple[shapes.Target, ...]:
    return tuple(
        shapes.Target(
            distribution=name,
            path=target.path,
            when=target.when,
            edits=tuple(shapes.Edit(edit.old, edit.new) for edit in target.edits),
            upstreamed=tuple(
                shapes.Sign(sign.contains or sign.lacks or "", sign.contains is not None, sign.why)
                for sign in target.upstreamed
            ),
        )
        for target in patch.targets
        for name in target.distributions
        if name in versions and covers(target.versions, versions[name])
    )


def _verdict(patch: Patch, versions: Mapping[str, str]) -> shapes.Verdict | None:
    """What versions alone decide; None when the files must be asked."""
    for settled in patch.settled:
        if settled.distribution in versions and covers(settled.versions, versions[settled.distribution]):
            return shapes.Verdict(settled.state, settled.reason)
    there = [f"{name} {versions[name]}" for name in patch.distributions if name in versions]
    if not there:
        return shapes.Verdict("not-applicable", f"{' or '.join(patch.distributions)} is not installed")
    if patch.precedence:
        known_range = covers(patch.precedence.versions, versions.get(patch.precedence.loser, "0"))
    else:
        known_range = bool(_targets(patch, versions))
    return None if known_range else shapes.Verdict("not-applicable", f"{' and '.join(there)} is outside its versions")
