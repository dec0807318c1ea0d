"""Take off this host what sparkfleet laid down: what the receipt says and the directories of ours, nothing else.

Whatever is cut off is taken up by the next run: the receipt goes when nothing else is left but its own directory.
"""

import contextlib
import os
import pwd
import shutil
from pathlib import Path
from typing import Any

from .. import lock, receipt
from ..command import run
from ..errors import HostError
from ..facts.source import names
from ..progress import say
from ..settle import compiled_of
from ..shapes import Author, RemovalOrder
from . import units


def apply(order: RemovalOrder, author: Author) -> None:
    """Remove all of ours but what ``order`` keeps.

    Raises HostError, when nothing but its units is gone yet, if another process runs as our user.
    """
    content = receipt.read()
    if not content:
        say("nothing of sparkfleet's is here")
        return
    known: dict[str, Any] = dict(content.get("units", {}))
    account = content.get("account", {}) if content.get("account", {}).get("created") else {}
    for name in list(known):
        units.retire(name, known.pop(name))
        receipt.record(author, units=known)
    _refuse_users(account)
    for file in content.get("files", []):
        _unlink(Path(file))
    for tree in order.trees:
        if os.path.lexists(tree):
            shutil.rmtree(tree, ignore_errors=True)
            say(f"left {tree}: it cannot be removed whole" if os.path.lexists(tree) else f"removed {tree}")
    _remove_account(account)
    _remove_last(order, content.get("directories", []))


def _refuse_users(account: dict[str, Any]) -> None:
    if not account or _name_of(account["uid"]) not in (account["name"], ""):
        return  # the user was removed, and its number is another's now
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if entry.stat().st_uid == account["uid"]:
                raise HostError(f"process {entry.name} runs as {account['name']}. Stop it, then run again.")


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""


def _unlink(path: Path) -> None:
    """Remove a file of ours; one that has lost our mark is somebody else's now."""
    if not units.is_ours(str(path)):
        say(f"left {path}: it lacks the line '{units.MARK}'")
        return
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
        say(f"removed {path}")


def _remove_account(account: dict[str, Any]) -> None:
    """The user that we made; one that was there before stays."""
    with contextlib.suppress(KeyError):
        if account and pwd.getpwnam(account["name"]).pw_uid == account["uid"]:
            run(("userdel", account["name"]))  # and the group of the same name
            say(f"removed user {account['name']}")


def _remove_last(order: RemovalOrder, directories: list[str]) -> None:
    """The agent, the directories as far as they are empty, and the receipt."""
    for file in (Path(order.agent), *compiled_of(Path(order.agent))):
        file.unlink(missing_ok=True)
    home = str(receipt.PATH.parent)
    for path in sorted({*directories, *order.directories} - {home}, key=len, reverse=True):
        _remove_empty(path)
    receipt.PATH.unlink(missing_ok=True)
    lock.PATH.unlink(missing_ok=True)
    _remove_empty(home)


def _remove_empty(path: str) -> None:
    try:
        os.rmdir(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        say(f"left {path}: {', '.join(names(path)[:5]) or error.strerror}")
