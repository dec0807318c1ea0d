"""Files and directories: looked at without following surprises, replaced in one step."""

import contextlib
import grp
import hashlib
import os
import pwd
import stat
from pathlib import Path

from .errors import HostError
from .shapes import Directory, PathState, TextFile

_CHUNK = 1024 * 1024


def sha256(path: Path) -> str:
    """The SHA-256 of a file's bytes, as hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def mark(path: Path) -> list[int]:
    """Inode, size and time of a file: whoever replaces or writes it leaves others."""
    status = path.stat()
    return [status.st_ino, status.st_size, status.st_mtime_ns]


def look(path: str) -> PathState | None:
    """What is at ``path``; None when nothing is. Links are not followed."""
    try:
        status = os.lstat(path)
        is_file = stat.S_ISREG(status.st_mode)
        return PathState(
            kind="file" if is_file else "directory" if stat.S_ISDIR(status.st_mode) else "other",
            owner=_user(status.st_uid),
            group=_group(status.st_gid),
            mode=stat.S_IMODE(status.st_mode),
            sha256=sha256(Path(path)) if is_file else None,
            mtime=status.st_mtime,
        )
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return PathState("other", "unknown", "unknown", 0)  # a loop of links, a broken disk


def write(path: Path, content: str, mode: int, owner: str = "root", group: str = "root") -> None:
    """Replace ``path`` as a whole or not at all; the new file never exists with a wider mode than ``mode``.

    Raises HostError when the file system does not take it; what was there before is then still there.
    """
    beside = path.with_name(f".{path.name}.sparkfleet-new")
    try:
        beside.unlink(missing_ok=True)
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            os.fchown(handle, pwd.getpwnam(owner).pw_uid, grp.getgrnam(group).gr_gid)
            os.fchmod(handle, mode)
            file.write(content.encode())
            file.flush()
            os.fsync(handle)
        os.replace(beside, path)
        sync_directory(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise HostError(f"{path}: cannot be written: {error.strerror or error}.") from None


def ensure_file(file: TextFile) -> bool:
    """Make ``file`` be there as wanted, owned by root; True when something had to be done."""
    path = Path(file.path)
    state = look(file.path)
    if state and (state.kind, state.owner, state.group) == ("file", "root", "root") and state.mode == file.mode:
        if state.sha256 == file.sha256:
            return False
    elif state and state.kind != "file":
        raise HostError(f"{path}: expected a file, found {_what(state)}; move it away, it is not ours.")
    write(path, file.content, file.mode)
    return True


def ensure_directory(directory: Directory) -> bool:
    """Make ``directory`` be there with its owner and mode; True when something had to be done."""
    path = Path(directory.path)
    state = look(directory.path)
    if state and state.kind != "directory":
        raise HostError(f"{path}: expected a directory, found {_what(state)}; move it away, it is not ours.")
    if state and (state.owner, state.group, state.mode) == (directory.owner, directory.group, directory.mode):
        return False
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chown(path, pwd.getpwnam(directory.owner).pw_uid, grp.getgrnam(directory.group).gr_gid)
        path.chmod(directory.mode)
    except OSError as error:
        raise HostError(f"{path}: directory cannot be made: {error.strerror or error}.") from None
    return True


def _what(state: PathState) -> str:
    return "something else (links are not followed)" if state.kind == "other" else f"a {state.kind}"


def sync_directory(path: Path) -> None:
    """Make a rename in ``path`` survive a power cut."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)  # an owner who was removed


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
