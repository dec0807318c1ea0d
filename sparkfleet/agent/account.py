"""The system user that units run as, its directories and limits."""

import grp
import os
import pwd
from pathlib import Path

from . import receipt
from .command import run
from .paths import ensure_directory, ensure_file
from .progress import say
from .shapes import Account, AccountOrder, AccountState, Author, Directory


def look(name: str) -> AccountState | None:
    """The account as it is; None when there is none."""
    try:
        user = pwd.getpwnam(name)
    except KeyError:
        return None
    groups = tuple(sorted(group.gr_name for group in grp.getgrall() if name in group.gr_mem))
    return AccountState(user.pw_uid, user.pw_gid, user.pw_dir, groups)


def missing_groups(account: Account, state: AccountState) -> list[str]:
    """Groups that exist on this machine and that the account should be in but is not."""
    existing = {group.gr_name for group in grp.getgrall()}
    return [name for name in account.groups if name in existing and name not in state.groups]


def apply(order: AccountOrder, author: Author) -> None:
    """Make user, group, directories and files be there.

    A user that was removed gets its former number back, so that what it owned is its own again.
    """
    known = receipt.read().get("account", {})
    _ensure_user(order.account, known.get("uid"), known.get("gid"))
    for directory in order.directories:
        if ensure_directory(directory):
            say(f"directory {directory.path}")
            _hand_over(directory)
    for file in order.files:
        if ensure_file(file):
            say(f"file {file.path}")
    state = look(order.account.name)
    assert state
    receipt.record(
        author,
        account={"name": order.account.name, "uid": state.uid, "gid": state.gid},
        directories=[directory.path for directory in order.directories],
        files=[file.path for file in order.files],
    )


def _ensure_user(account: Account, uid: int | None, gid: int | None) -> None:
    if not _group_exists(account.name):
        number = ("--gid", str(gid)) if gid is not None and not _gid_taken(gid) else ()
        run(("groupadd", "--system", *number, account.name))
        say(f"group {account.name}")
    if look(account.name) is None:
        number = ("--uid", str(uid)) if uid is not None and not _uid_taken(uid) else ()
        options = ("--system", "--gid", account.name, "--no-create-home", "--home-dir", account.home)
        run(("useradd", *options, "--shell", "/usr/sbin/nologin", *number, account.name))
        say(f"user {account.name}")
    state = look(account.name)
    assert state
    if groups := missing_groups(account, state):
        run(("usermod", "--append", "--groups", ",".join(groups), account.name))
        say(f"user {account.name} in {', '.join(groups)}")


def _hand_over(directory: Directory) -> None:
    """Give what lies in a directory of the account's back to it, if the account's number has changed."""
    if directory.owner == "root":
        return
    uid, gid = pwd.getpwnam(directory.owner).pw_uid, grp.getgrnam(directory.group).gr_gid
    for place, names, files in os.walk(directory.path):
        for name in (*names, *files):
            os.chown(Path(place) / name, uid, gid, follow_symlinks=False)


def _group_exists(name: str) -> bool:
    return any(group.gr_name == name for group in grp.getgrall())


def _uid_taken(uid: int) -> bool:
    return any(user.pw_uid == uid for user in pwd.getpwall())


def _gid_taken(gid: int) -> bool:
    return any(group.gr_gid == gid for group in grp.getgrall())
