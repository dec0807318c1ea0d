"""Put the agent itself down on a host."""

import os
import stat
from pathlib import Path

from .errors import HostError
from .paths import sync_directory


def settle(code: bytes, home: Path) -> None:
    """Replace the agent at ``home`` with ``code``, as a whole or not at all."""
    beside = home.with_name(f".{home.name}.new")
    try:
        home.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        status = home.parent.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != 0:
            raise HostError(f"{home.parent}: expected a directory of root's, found something else. Move it away.")
        home.parent.chmod(0o755)
        with beside.open("wb") as file:
            os.fchmod(file.fileno(), 0o644)  # units run it as the system user
            file.write(code)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, home)
        sync_directory(home.parent)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise HostError(f"{home}: the agent cannot be written: {error.strerror or error}.") from None
