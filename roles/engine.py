"""The pinned engine: a release, built with uv from a hash-locked wheelhouse in a fresh directory, then sealed."""

from roles._lib.operations import converge as _converge


def converge() -> None:
    """Every release that a recipe of this host runs from is there and sealed; one half built is built again."""
    _converge("engine", "sealed release", lambda wanted, _: wanted.releases)
