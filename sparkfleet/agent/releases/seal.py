"""Apply its patch set to a built release as a whole, then seal it: from then on it may be used."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import patching, receipt
from ..errors import HostError
from ..patching.shapes import SETTLED, PatchSet
from ..paths import sha256
from ..progress import say
from ..shapes import Assertions, Author
from . import assertions
from .release import beside, compile_bytecode, distributions, read, remember, site_packages, state, take_place


@dataclass(frozen=True)
class PatchOrder:
    """The patch set of a built release; applied whole, after which it is held to ``assertions`` and sealed."""

    release: str
    patch_set: PatchSet
    assertions: Assertions


def apply(order: PatchOrder, author: Author) -> None:
    """Patch and seal ``order``'s release; nothing is done to one that is sealed.

    Raises HostError naming the patches that cannot be applied or do not do what they should (no file is patched then),
    or what the release is not that it must be.
    """
    path = Path(order.release)
    if state(path).sealed:
        return
    new = beside(path)
    content = read(new)
    if content["sealed"] is not True:
        _seal(new, content, order)
    take_place(path)
    receipt.record(author, release={key: content[key] for key in ("name", "engine", "digest")})
    say(f"sealed {path}")


def _seal(new: Path, content: dict[str, Any], order: PatchOrder) -> None:
    site = site_packages(new)
    foreign = bool(content.get("platform"))
    report = patching.apply(site, order.patch_set, probe=not foreign)
    if not report.converged:
        raise HostError(
            f"{content['name']}: the patch set is not applied. {'; '.join(_obstacles(report))}. Nothing was switched."
        )
    applied = [row for row in report.rows if row.state == "applied"]
    for row in applied:
        say(f"{row.patch} on {row.target or row.distribution}")
    patched = sorted({row.target for row in applied if row.target})
    compile_bytecode(new, patched)
    assertions.check(new, site, order.assertions, foreign=foreign)
    for part in ("overlaps", "marks"):  # of a file that is patched, the patched form counts
        content[part] = {name: value for name, value in content.get(part, {}).items() if name not in patched}
    content["patched"] = {name: sha256(site / name) for name in patched}
    content["patches"] = {f"{row.patch} {row.target}".strip(): row.state for row in report.rows}
    content["distributions"] = distributions(site)
    # A process that was started before this moment ran what was in this place before, and is restarted.
    remember(new, content | {"sealed": True, "sealed_at": round(time.time(), 3)})


def _obstacles(report: patching.Report) -> list[str]:
    rows = [
        f"{row.patch} on {row.target or row.distribution}: {row.state} ({row.reason})"
        for row in report.rows
        if row.wanted and row.state not in SETTLED
    ]
    failed = [probe for probe in report.probes if probe.outcome == "failed"]
    return rows + [f"{probe.patch}: its probe failed ({probe.detail})" for probe in failed]
