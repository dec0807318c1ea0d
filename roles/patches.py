"""The SM121 patch set: applied to a built release as a whole or not at all; that seals the release.

A release without it serves garbage or fails on a Spark, and only a sealed release is ever run. One that is changed
afterwards is built again by the role before this one, never mended in place.
"""

from roles._lib.operations import converge as _converge


def converge() -> None:
    """Every release of this host has its patch set and is sealed."""
    _converge("patches", "patch set applied, release sealed", lambda wanted, _: wanted.patches)
