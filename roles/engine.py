"""The pinned engine: a release, built with uv from a hash-locked wheelhouse in a fresh directory."""

from roles._lib.operations import converge as _converge


def converge() -> None:
    """Every release that a recipe of this host runs from is there; one half built or changed since is built again."""
    _converge("engine", "built release", lambda wanted, _: wanted.releases)
