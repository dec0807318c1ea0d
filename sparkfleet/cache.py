"""Where sparkfleet keeps what takes long to make, and who it belongs to."""

import os
import pwd
from pathlib import Path

from sparkfleet.errors import UserError


def caller() -> tuple[int, int]:
    """User and group id of the person at the keyboard: the one who ran ``sudo``, if anyone did."""
    if os.geteuid() == 0 and "SUDO_UID" in os.environ:
        return int(os.environ["SUDO_UID"]), int(os.environ["SUDO_GID"])
    return os.geteuid(), os.getegid()


def cache_dir() -> Path:
    """``$SPARKFLEET_CACHE``, else ``$XDG_CACHE_HOME/sparkfleet``, else ``~/.cache/sparkfleet`` of the caller.

    Under ``sudo`` it is still the caller's: the wheelhouse a person fills is the one the lab's hosts see.
    """
    if explicit := os.environ.get("SPARKFLEET_CACHE"):
        return Path(explicit).absolute()
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared).absolute() / "sparkfleet"
    return Path(pwd.getpwuid(caller()[0]).pw_dir) / ".cache" / "sparkfleet"


def make_dir(path: Path) -> Path:
    """Create a directory and its missing parents for the caller, so that ``sudo`` leaves them no locked cache."""
    missing = [p for p in (path, *path.parents) if not p.exists()]
    try:
        for directory in reversed(missing):
            directory.mkdir(exist_ok=True)
            os.chown(directory, *caller())
    except OSError as error:
        raise UserError(
            f"{path} cannot be made: {error.strerror}. The cache is in {cache_dir()}; set SPARKFLEET_CACHE to a "
            f"directory that can be written to."
        ) from error
    return path
