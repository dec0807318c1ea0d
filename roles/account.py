"""The system user ``sparkfleet``, its directories and limits.

A system user, because logind removes the shared memory of a regular one ten seconds after its last session ends
(``RemoveIPC=yes`` on DGX OS) and with it the engine's.
"""

from roles._lib.operations import converge as _converge


def converge() -> None:
    """User and group, directories with their owners, limits for running the engine by hand."""
    _converge("account", "system user, directories, limits", lambda wanted, _: [wanted.account])
