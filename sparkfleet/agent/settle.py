"""Put the agent itself down on a host."""

import importlib.util
import io
import marshal
import os
import stat
import zipfile
from pathlib import Path

from .errors import HostError
from .paths import sync_directory


def settle(code: bytes, home: Path, compiled: str) -> None:
    """Replace the agent at ``home`` with ``code``, as a whole or not at all.

    ``compiled`` is where its entry looks for the same modules, compiled by this Python; those of others are removed.
    """
    try:
        home.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        status = home.parent.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != 0:
            raise HostError(f"{home.parent}: expected a directory of root's, found something else. Move it away.")
        home.parent.chmod(0o755)
        _write(home, code)
        for old in compiled_of(home):
            old.unlink()
        if os.path.dirname(compiled) == str(home.parent):
            _write(Path(compiled), compile_all(code))
        sync_directory(home.parent)
    except OSError as error:
        raise HostError(f"{home}: the agent cannot be written: {error.strerror or error}.") from None


def compiled_of(home: Path) -> list[Path]:
    """What was compiled of the agent at ``home``, and of those that were there before it."""
    return [*home.parent.glob("compiled-*.zip"), *home.parent.glob(".compiled-*.zip.new")]


def compile_all(code: bytes) -> bytes:
    """A zip file with source and byte code of every module of the zipapp ``code``, for this Python."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(code)) as sources, zipfile.ZipFile(buffer, "w") as target:
        for name in sources.namelist():
            source = sources.read(name)
            module = compile(source, name, "exec", dont_inherit=True)
            # a .pyc that says: do not look whether the source beside it is the one I was made of (PEP 552)
            content = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8) + marshal.dumps(module)
            target.writestr(f"{name}c", content)
            target.writestr(name, source)  # some modules read others as text
    return buffer.getvalue()


def _write(path: Path, content: bytes) -> None:
    beside = path.with_name(f".{path.name}.new")
    try:
        with beside.open("wb") as file:
            os.fchmod(file.fileno(), 0o644)  # units run it as the system user
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
