"""The SM121 patch set on one site-packages directory: its state, applying it whole, taking it back.

``status``, ``apply`` and ``revert`` take a directory and a ``PatchSet`` compiled by ``sparkfleet.patchset`` and return
a ``Report``. What a person can mend is raised as ``HostError``, and then nothing has been changed.
"""

from .change import apply, revert, status
from .shapes import Edit, Patch, PatchSet, Precedence, Probe, ProbeResult, Report, Row, Sign, State, Target, Verdict

__all__ = [
    "Edit",
    "Patch",
    "PatchSet",
    "Precedence",
    "Probe",
    "ProbeResult",
    "Report",
    "Row",
    "Sign",
    "State",
    "Target",
    "Verdict",
    "apply",
    "revert",
    "status",
]
