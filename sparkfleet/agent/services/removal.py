"""Take off this host what sparkfleet laid down: what the receipt says and the directories of ours, nothing else.

What is told beforehand and what is done are one list. Whatever is cut off is taken up by the next run: the receipt goes
when nothing else is left but its own directory, and what was kept is known by its path.
"""

import contextlib
import os
import pwd
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from .. import lock, receipt, trees
from ..command import run
from ..errors import HostError
from ..facts.source import names
from ..progress import say
from ..releases import release
from ..settle import compiled_of
from ..shapes import Author, Removal, RemovalOrder
from . import units


@dataclass(frozen=True)
class _Thing:
    """Something of ours: what it is called, its paths, and how it is removed (False: it has to stay after all)."""

    text: str
    paths: tuple[str, ...]
    remove: Callable[[], bool]


def look(order: RemovalOrder) -> Removal:
    """What ``apply`` would do now. Raises HostError when the receipt cannot be read."""
    content = receipt.read()
    if lost := _lost(order, content):
        return Removal(lost=lost)
    known = content.get("units", {})
    gone = {path for entry in known.values() for path in entry.get("files", ()) if units.is_ours(path)}
    things, left = _sorted_out(order, content, gone)
    return Removal((*known, *(one.text for one in things)), _kept(order), left)


def apply(order: RemovalOrder, author: Author) -> None:
    """Remove all of ours but what ``order`` keeps.

    Raises HostError if, when nothing but its units is gone yet, another process runs as our user, and when something
    cannot be removed; the receipt is then still there.
    """
    content = receipt.read()
    if lost := _lost(order, content):
        raise HostError(lost)
    known: dict[str, Any] = dict(content.get("units", {}))
    for name in list(known):
        units.retire(name, known.pop(name), "sparkfleet is taken off this host")
        receipt.record(author, units=known)
        say(f"removed {name}")
    _refuse_users(_account(content))
    things, left = _sorted_out(order, content, set())
    for one in things:
        if one.remove():
            say(f"removed {one.text}")
    lock.PATH.unlink(missing_ok=True)
    for text in left:
        say(f"left {text}")
    for text in _kept(order):
        say(f"kept {text}")


def _lost(order: RemovalOrder, content: dict[str, Any]) -> str:
    """Why nobody can say what there is beside what is seen; empty where somebody can. What is kept has no receipt."""
    there = next(filter(os.path.lexists, order.trees), "")
    if content or not there:
        return ""
    return (
        f"{there} is there, and no receipt ({receipt.PATH}) that says which units and which user go with it. "
        f"Deploy, which writes one anew, or restore it; then run again."
    )


def _kept(order: RemovalOrder) -> tuple[str, ...]:
    return tuple(f"{path}; --data 'uninstall_keeps=[]' removes it too" for path in order.kept if names(path))


def _account(content: dict[str, Any]) -> dict[str, Any]:
    """The user that we made; one that was there before stays."""
    account: dict[str, Any] = content.get("account", {})
    whole = account.get("created") and account.get("name") and account.get("uid") is not None
    return account if whole else {}


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


def _sorted_out(
    order: RemovalOrder, content: dict[str, Any], gone: set[str]
) -> tuple[tuple[_Thing, ...], tuple[str, ...]]:
    """What is to go beside units, in order, and what of ours has to stay and why; ``gone`` are paths that go before."""
    left: list[str] = []
    things = [*_files(content, left), *_trees(order, left), *_user(content), *_agent(order)]
    gone |= {path for one in things for path in one.paths}
    home = str(receipt.PATH.parent)
    for path in sorted({*content.get("directories", ()), *order.directories} - {home}, key=_deepest_first):
        things += _directory(path, gone, order, left)
    if receipt.PATH.exists():
        things.append(_Thing(str(receipt.PATH), (), partial(_unlink, str(receipt.PATH))))
    things += _directory(home, gone | {str(receipt.PATH)}, order, left)
    return tuple(things), tuple(dict.fromkeys(left))


def _deepest_first(path: str) -> tuple[int, str]:
    return -path.count("/"), path


def _files(content: dict[str, Any], left: list[str]) -> Iterator[_Thing]:
    """Files of ours; one that has lost our mark is somebody else's now."""
    for path in filter(os.path.lexists, content.get("files", ())):
        if os.path.isdir(path):
            left.append(f"{path}: it is no file")
        elif units.is_ours(path):
            yield _Thing(path, (path,), partial(_unlink, path))
        else:
            left.append(f"{path}: it lacks the line '{units.MARK}'")


def _trees(order: RemovalOrder, left: list[str]) -> Iterator[_Thing]:
    for one in release.look(order.releases):
        size = f": {one.size / 1e9:.1f} GB" if one.size else ""
        path = f"{order.releases}/{one.name}"
        yield _Thing(f"release {one.name}{size}", (), partial(_remove_release, Path(path)))
    for tree in filter(os.path.lexists, (*order.trees, *order.asked)):
        if os.path.isdir(tree) and not os.path.islink(tree):
            yield _Thing(tree, (tree,), partial(trees.remove, tree))
        else:
            left.append(f"{tree}: it is no directory")


def _user(content: dict[str, Any]) -> Iterator[_Thing]:
    account = _account(content)
    with contextlib.suppress(KeyError):
        if account and pwd.getpwnam(account["name"]).pw_uid == account["uid"]:
            yield _Thing(f"user {account['name']}", (), partial(_remove_user, account["name"]))


def _remove_user(name: str) -> bool:
    run(("userdel", name))  # and the group of the same name
    return True


def _agent(order: RemovalOrder) -> Iterator[_Thing]:
    files = tuple(str(one) for one in (Path(order.agent), *compiled_of(Path(order.agent))) if one.exists())
    if files:
        yield _Thing(order.agent, files, partial(_unlink, *files))


def _directory(path: str, gone: set[str], order: RemovalOrder, left: list[str]) -> Iterator[_Thing]:
    """A directory that will be empty when ``gone`` are gone; what is kept is no reason to speak of those above it."""
    if path in gone or not os.path.lexists(path):
        return
    if os.path.islink(path) or not os.path.isdir(path):
        left.append(f"{path}: it is no directory")
        return
    others = [name for name in names(path) if f"{path}/{name}" not in gone]
    if not others:
        gone.add(path)
        yield _Thing(path, (path,), partial(trees.remove_empty, path))
    elif odd := [name for name in others if path not in order.kept and f"{path}/{name}" not in order.kept]:
        left.append(f"{path}: {', '.join(odd[:5])}")


def _unlink(*paths: str) -> bool:
    for path in paths:
        Path(path).unlink(missing_ok=True)
    return True


def _remove_release(path: Path) -> bool:
    """Out of its place first, so that a release that is half removed is never taken for one."""
    aside = path.with_name(f".{path.name}.gone")
    for one in (aside, path, release.beside(path)):
        if not os.path.lexists(one):
            continue
        if one != aside:
            one.rename(aside)
        trees.remove(str(aside), f"release {path.name}")
    return True
