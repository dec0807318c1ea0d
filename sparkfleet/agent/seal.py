"""Apply its patch set to a built release as a whole, then seal it: from then on it may be used."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import patching, receipt
from .command import run
from .errors import HostError
from .patching.shapes import SETTLED, PatchSet
from .paths import sha256
from .progress import say
from .release import beside, distributions, read, remember, site_packages, state, take_place
from .shapes import Author


@dataclass(frozen=True)
class PatchOrder:
    """The patch set of a built release; applied whole, after which the release is sealed."""

    release: str
    patch_set: PatchSet


def apply(order: PatchOrder, author: Author) -> None:
    """Patch and seal ``order``'s release; nothing is done to one that is sealed.

    Raises HostError naming the patches that cannot be applied or do not do what they should; no file is patched then.
    """
    path = Path(order.release)
    if state(path).sealed:
        return
    new = beside(path)
    content = read(new)
    if content["sealed"] is not True:
        _seal(new, content, order.patch_set)
    take_place(path)
    receipt.record(author, release={key: content[key] for key in ("name", "engine", "digest")})
    say(f"sealed {path}")


def _seal(new: Path, content: dict[str, Any], patch_set: PatchSet) -> None:
    site = site_packages(new)
    report = patching.apply(site, patch_set)
    if not report.converged:
        raise HostError(
            f"{content['name']}: the patch set is not applied. {'; '.join(_obstacles(report))}. Nothing was switched."
        )
    applied = [row for row in report.rows if row.state == "applied"]
    for row in applied:
        say(f"{row.patch} on {row.target or row.distribution}")
    patched = sorted({row.target for row in applied if row.target})
    if patched:  # byte-compiled like the rest: the units' user cannot write there
        run((str(new / "bin" / "python"), "-m", "py_compile", *(str(site / name) for name in patched)))
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
