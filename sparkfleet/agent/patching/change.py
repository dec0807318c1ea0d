"""Bring a directory to exactly the wanted patches, or back to what was shipped: all of it or nothing."""

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from ..errors import HostError
from . import edits, probes, store
from .files import dress, read, sha256
from .look import Look, look
from .shapes import BLOCKED, SCHEMA, PatchSet, Probe, ProbeResult, Report, Row
from .site_lock import held


def status(site: Path, patches: PatchSet, *, python: Path | None = None, probe: bool = False) -> Report:
    """The state of every patch. Writes nothing; with ``probe``, also tries the behaviour probes of wanted patches.

    Raises HostError when ``site`` cannot be read, or is being changed for longer than a change takes.
    """
    site = site.resolve()
    with held(site, shared=True):
        found = look(site, patches)
        results = probes.run(site, _provable(patches, found), python) if probe else ()
        return _report(site, patches, found, probes_run=results)


def apply(site: Path, patches: PatchSet, *, python: Path | None = None, probe: bool = True) -> Report:
    """Make ``site`` have exactly the wanted patches. A change that was cut off before is settled first.

    ``python`` runs the behaviour probes; by default the one of the virtual environment that ``site`` is in. Without
    ``probe`` they are left out, as they must be where what is installed is for another kind of machine. When a probe
    fails, everything is as it was and the report says so. Raises HostError, with nothing changed, when a wanted
    patch is in conflict, missing or beyond us, or the file system refuses.
    """
    site = site.resolve()
    with held(site, shared=False):
        store.settle(site)
        found = look(site, patches)
        _refuse(found.rows)
        wanted = {path: _wanted(found, path) for path in found.files}
        changes = [
            store.Change(path, file.original, file.data, wanted[path])
            for path, file in found.files.items()
            if file.original is not None and file.data is not None and wanted[path] != file.data
        ]
        if not changes:
            return _report(site, patches, found)
        laid = [
            store.Laid(path, sha256(file.original), sha256(wanted[path]))
            for path, file in found.files.items()
            if file.original is not None and wanted[path] != file.original
        ]
        return _change(site, patches, changes, laid, python, probe)


def revert(site: Path, patches: PatchSet) -> Report:
    """Give back every byte that the distributions shipped, and remove what sparkfleet kept there.

    Raises HostError, with nothing changed, when a file that we patched has been changed by somebody since.
    """
    site = site.resolve()
    with held(site, shared=False):
        store.settle(site)
        found = look(site, patches)
        changes = [*_ours(site, found), *_forgotten(site, found)]
        if changes or store.laid_down(site):
            store.make(site, "revert", changes, ())
            store.commit(site)
        return _report(site, patches, look(site, patches), changed=[change.path for change in changes])


def _change(
    site: Path, patches: PatchSet, changes: list[store.Change], laid: list[store.Laid], python: Path | None, probe: bool
) -> Report:
    action: Literal["apply", "revert"] = "apply" if laid else "revert"
    try:
        store.make(site, action, changes, laid)
        after = look(site, patches)
        results = probes.run(site, _provable(patches, after), python) if probe else ()
        failed = [result for result in results if result.outcome == "failed"]
        if failed:
            store.settle(site)
            return _report(site, patches, look(site, patches), probes_run=results)
        store.commit(site)
    except BaseException:
        # An interrupt from the keyboard, or a defect of ours: the journal says what to do, and it is done at once.
        store.settle(site)
        raise
    return _report(site, patches, after, changed=[change.path for change in changes], probes_run=results)


def _wanted(found: Look, path: str) -> bytes:
    file = found.files[path]
    if file.original is None or file.data is None:
        return b""
    aims = [
        (patch, target)
        for patch, target in found.aims[path]
        if patch.wanted and target.distribution == file.owner and target.edits and _applies(found.rows, patch.id, path)
    ]
    if file.applied == {patch.id for patch, _ in aims} and not file.earlier:
        return file.data  # recognised byte for byte: nothing to build, compile and compare
    try:
        return dress(file.original, aims) if aims else file.original
    except edits.EditError as error:
        raise HostError(
            f"{path}: the patches of the set are in each other's way: {error}. Nothing was changed."
        ) from None


def _applies(rows: Iterable[Row], patch: str, path: str) -> bool:
    return any(row.patch == patch and row.target == path and row.state in ("pristine", "applied") for row in rows)


def _refuse(rows: Iterable[Row]) -> None:
    """Stop before the first write when a wanted patch cannot be brought to its state."""
    reasons = [
        f"{row.patch} is {row.state} ({row.target or row.distribution}): {row.reason}"
        for row in rows
        if row.wanted and (row.state in BLOCKED or (row.state == "pristine" and not row.target))
    ]
    if reasons:
        raise HostError("; ".join(reasons) + ". Nothing was changed.")


def _ours(site: Path, found: Look) -> list[store.Change]:
    laid = {one.path for one in store.laid_down(site)}
    changes = []
    for path, file in found.files.items():
        if file.data is not None and file.original is None and path in laid:
            raise HostError(f"{path}: we patched it, and now it is {file.problem}. Nothing was changed.")
        if file.original is not None and file.data is not None and file.data != file.original:
            changes.append(store.Change(path, file.original, file.data, file.original))
    return changes


def _forgotten(site: Path, found: Look) -> list[store.Change]:
    """Files that we laid down and that no patch of this set, for these versions, speaks of any more."""
    kept = store.kept_originals(site)
    changes = []
    for laid in store.laid_down(site):
        if laid.path not in found.files:
            data = read(site, laid.path)
            if data is not None and sha256(data) == laid.patched and laid.patched in kept:
                original = kept[laid.patched]
                changes.append(store.Change(laid.path, original, data, original))
    return changes


def _provable(patches: PatchSet, found: Look) -> list[tuple[str, Probe]]:
    states = ("pristine", "applied", "upstreamed")
    done = {row.patch for row in found.rows if row.wanted and row.target and row.state in states}
    return [(patch.id, patch.probe) for patch in patches.patches if patch.probe and patch.id in done]


def _report(
    site: Path,
    patches: PatchSet,
    found: Look,
    changed: Iterable[str] = (),
    probes_run: tuple[ProbeResult, ...] = (),
) -> Report:
    return Report(
        SCHEMA, str(site), patches.name, tuple(found.rows), store.interrupted(site), tuple(changed), probes_run
    )
