"""The system user that units run as, its directories and limits."""

import contextlib
import grp
import os
import pwd

from . import receipt
from .command import run
from .errors import HostError
from .paths import ensure_directory, ensure_file
from .progress import say
from .shapes import Account, AccountOrder, AccountState, Author, Directory

#: From here on are people's accounts (login.defs of Debian and Ubuntu), whose shared memory logind removes.
FIRST_REGULAR_UID = 1000


def look(account: Account) -> AccountState | None:
    """The account as it is; None when there is none. Groups that this machine does not have are not missed."""
    try:
        user = pwd.getpwnam(account.name)
    except KeyError:
        return None
    groups = {group.gr_name: group.gr_mem for group in grp.getgrall()}
    missing = tuple(name for name in account.groups if name in groups and account.name not in groups[name])
    return AccountState(user.pw_uid, user.pw_gid, user.pw_dir, missing)


def apply(order: AccountOrder, author: Author) -> None:
    """Make user, group, directories and files be there.

    A user that was removed gets its former number back, so that what it owned is its own again.
    """
    known = receipt.read().get("account", {})
    before = look(order.account)
    # Without a receipt that knows, a user of our name whose home is ours was made by us.
    created = bool(known.get("created", before is None or before.home == order.account.home))
    _ensure_user(order.account, known.get("uid"), known.get("gid"))
    _remember(order, author, created)
    for directory in order.directories:
        _ensure(directory)
    for file in order.files:
        if ensure_file(file):
            say(f"file {file.path}")


def _remember(order: AccountOrder, author: Author, created: bool) -> None:
    """Have the receipt say what is ours before it is made: what a run that fails leaves can then be taken off."""
    state = look(order.account)
    assert state
    for home in (one for one in order.directories if one.path == str(receipt.PATH.parent)):
        _ensure(home)
    receipt.record(
        author,
        account={"name": order.account.name, "uid": state.uid, "gid": state.gid, "created": created},
        directories=[directory.path for directory in order.directories],
        files=[file.path for file in order.files],
    )


def _ensure(directory: Directory) -> None:
    if ensure_directory(directory):
        say(f"directory {directory.path}")
        _hand_over(directory)


def _ensure_user(account: Account, uid: int | None, gid: int | None) -> None:
    if not _group_exists(account.name):
        number = ("--gid", str(gid)) if gid is not None and not _gid_taken(gid) else ()
        run(("groupadd", "--system", *number, account.name))
        say(f"group {account.name}")
    if look(account) is None:
        number = ("--uid", str(uid)) if uid is not None and not _uid_taken(uid) else ()
        options = ("--system", "--gid", account.name, "--no-create-home", "--home-dir", account.home)
        run(("useradd", *options, "--shell", "/usr/sbin/nologin", *number, account.name))
        say(f"user {account.name}")
    state = look(account)
    assert state
    if state.uid >= FIRST_REGULAR_UID:
        raise HostError(
            f"user {account.name}: expected a system user, found a person's account (uid {state.uid}). Rename or "
            f"remove it: logind takes a person's shared memory away when its last session ends."
        )
    if state.missing_groups:
        groups = ",".join(state.missing_groups)
        run(("usermod", "--append", "--groups", groups, account.name))
        say(f"user {account.name} in {groups}")


def _hand_over(directory: Directory) -> None:
    """Give what lies in a directory of the account's back to it, if the account's number has changed."""
    if directory.owner == "root":
        return
    uid, gid = pwd.getpwnam(directory.owner).pw_uid, grp.getgrnam(directory.group).gr_gid
    # By handles: whoever owns a directory can put a link in its place while root walks through.
    for _, names, files, place in os.fwalk(directory.path):
        for name in (*names, *files):
            with contextlib.suppress(FileNotFoundError):  # a unit that runs removes files of its own
                os.chown(name, uid, gid, dir_fd=place, follow_symlinks=False)


def _group_exists(name: str) -> bool:
    return any(group.gr_name == name for group in grp.getgrall())


def _uid_taken(uid: int) -> bool:
    return any(user.pw_uid == uid for user in pwd.getpwall())


def _gid_taken(gid: int) -> bool:
    return any(group.gr_gid == gid for group in grp.getgrall())
