"""The vocabularies of gpt-oss where openai-harmony and tiktoken look for them, so that neither needs the internet.

One file for each, and beside it a link by the name that those libraries give it in their cache.
"""

import base64
import grp
import hashlib
import json
import os
import pwd
import stat
import zlib
from pathlib import Path
from typing import Any

from .. import receipt
from ..errors import HostError
from ..paths import ensure_directory, sha256, sync_directory, write
from ..progress import say
from ..shapes import Author, Directory, VocabOrder, Vocabularies, Vocabulary
from ..wire import encode

#: A unit's user must not be able to write here: openai-harmony deletes what it does not like.
OWNER = GROUP = "root"
_DIRECTORY_MODE, _FILE_MODE = 0o755, 0o444


def look(wanted: Vocabularies, known: dict[str, Any]) -> str:
    """What must be done; empty when nothing. ``known`` is the receipt's section."""
    if found := problem(wanted):
        return found
    return "" if not wanted.files or known == _entry(wanted) else "not in the receipt"


def problem(wanted: Vocabularies) -> str:
    """What is wrong with the first thing that is; empty when all is right or nothing is wanted.

    Reads every byte: 5 MB, about 10 ms.
    """
    if not wanted.files:
        return ""
    path = Path(wanted.path)
    of_each = (_of_file(path / file.name, file) or _of_link(path / file.cache_name, file) for file in wanted.files)
    return _of_directory(path) or next(filter(None, of_each), "")


def apply(order: VocabOrder, author: Author) -> None:
    """Lay down what is missing or not as it should be; what is right stays as it is."""
    path = Path(order.wanted.path)
    if not order.wanted.files:
        return
    if ensure_directory(Directory(str(path), OWNER, GROUP, _DIRECTORY_MODE)):
        say(f"directory {path}")
    for file in order.wanted.files:
        if _of_file(path / file.name, file):
            write(path / file.name, _content(file, order.contents.get(file.name, "")), _FILE_MODE, OWNER, GROUP)
            say(f"vocabulary {file.name}")
        if _of_link(path / file.cache_name, file):
            _link(path / file.cache_name, file.name)
            say(f"its other name, {file.cache_name}")
    receipt.record(author, vocab=_entry(order.wanted))


def packed(content: bytes) -> str:
    """A vocabulary as an order carries it: 60 % of its size."""
    return base64.b64encode(zlib.compress(content, 6)).decode()


def _entry(wanted: Vocabularies) -> dict[str, Any]:
    """All that ``problem`` needs, as the receipt has it: it can be asked without the control machine."""
    entry: dict[str, Any] = json.loads(encode(wanted))
    return entry


def _of_directory(path: Path) -> str:
    try:
        status = path.lstat()
    except OSError:
        return "missing"
    if not stat.S_ISDIR(status.st_mode):
        return "not a directory"
    return _of_rights("it", status, _DIRECTORY_MODE)


def _of_file(path: Path, file: Vocabulary) -> str:
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            return f"{path.name} is not a file"
        if status.st_size != file.size:
            return f"{path.name} has {status.st_size} bytes, not {file.size}"
        if sha256(path) != file.sha256:
            return f"{path.name} has other bytes than it should"
        return _of_rights(path.name, status, _FILE_MODE)
    except FileNotFoundError:
        return f"{path.name} is missing"
    except OSError as error:
        return f"{path.name} cannot be read ({error.strerror})"


def _of_rights(name: str, status: os.stat_result, mode: int) -> str:
    ours = (pwd.getpwnam(OWNER).pw_uid, grp.getgrnam(GROUP).gr_gid, mode)
    found = (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode))
    return "" if found == ours else f"{name} is of user {found[0]}, group {found[1]}, mode {found[2]:o}"


def _of_link(path: Path, file: Vocabulary) -> str:
    try:
        return "" if os.readlink(path) == file.name else f"{path.name} leads elsewhere than to {file.name}"
    except FileNotFoundError:
        return f"{path.name} is missing"
    except OSError:
        return f"{path.name} is not the link to {file.name}"


def _content(file: Vocabulary, carried: str) -> str:
    """The text of a vocabulary. Raises HostError when the order has other bytes than it says itself."""
    try:
        content = zlib.decompressobj().decompress(base64.b64decode(carried, validate=True), file.size + 1)
    except (ValueError, zlib.error) as error:
        raise HostError(f"{file.name}: what the order carries cannot be unpacked ({error}). Run again.") from None
    if hashlib.sha256(content).hexdigest() != file.sha256:
        raise HostError(f"{file.name}: the order carries {len(content)} bytes that are not this file. Run again.")
    return content.decode("ascii")


def _link(path: Path, target: str) -> None:
    beside = path.with_name(f".{path.name}.sparkfleet-new")
    try:
        beside.unlink(missing_ok=True)
        beside.symlink_to(target)
        beside.replace(path)
        sync_directory(path.parent)
    except OSError as error:
        raise HostError(f"{path}: cannot be written: {error.strerror or error}.") from None
