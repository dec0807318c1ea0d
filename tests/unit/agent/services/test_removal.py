"""What is taken off a host, what stays, and that both are told before as they are done."""

import os
import pwd
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from sparkfleet.agent import lock, receipt, trees
from sparkfleet.agent.errors import HostError
from sparkfleet.agent.services import removal, units
from sparkfleet.agent.shapes import Author, RemovalOrder
from tests.unit.agent.test_paths import home as home

AUTHOR = Author("r1", "ann")
ME = pwd.getpwuid(os.getuid())
UNIT = "vllm-tiny.service"


@dataclass
class Host:
    """A host with all of sparkfleet below one directory."""

    root: Path
    order: RemovalOrder
    capsys: pytest.CaptureFixture[str]

    def deploy(self) -> None:
        for name in ("opt/releases/one/bin", "opt/tools", "state/home", "state/models/llama", "logs", "etc"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        for name in ("opt/releases/one/bin/python", "opt/agent.pyz", "opt/compiled-x.zip", "state/models/llama/w"):
            (self.root / name).write_text("content")
        (self.root / "logs/build.log").touch()
        (self.root / "etc/unit").write_text(units.MARK)
        (self.root / "limits").write_text(units.MARK)
        receipt.record(
            AUTHOR,
            units={UNIT: {"files": [f"{self.root}/etc/unit"]}},
            account={"name": "sparkfleet", "uid": 4_000_000_000, "gid": 1, "created": True},
            files=[f"{self.root}/limits"],
            directories=[f"{self.root}/opt/releases", f"{self.root}/state/home"],
        )

    def left(self) -> list[str]:
        return sorted(str(one.relative_to(self.root)) for one in self.root.rglob("*") if not one.is_dir())

    def apply(self, order: RemovalOrder | None = None) -> dict[str, tuple[str, ...]]:
        """What was told of it, by the first word."""
        self.capsys.readouterr()
        removal.apply(order or self.order, AUTHOR)
        said = [line.split(" s  ", 1)[1].split(" ", 1) for line in self.capsys.readouterr().out.splitlines()]
        return {word: tuple(thing for first, thing in said if first == word) for word in ("removed", "kept", "left")}

    @property
    def all(self) -> RemovalOrder:
        return replace(self.order, asked=self.order.kept, kept=())


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], home: Path) -> Host:
    def retire(name: str, entry: dict[str, Any], why: str) -> None:
        for path in entry["files"]:
            Path(path).unlink(missing_ok=True)

    root = tmp_path / "host"
    users = {"sparkfleet": pwd.struct_passwd(("sparkfleet", "x", 4_000_000_000, 1, "", "/", "/"))}
    monkeypatch.setattr(receipt, "PATH", root / "state" / "receipt.json")
    monkeypatch.setattr(lock, "PATH", root / "lock")
    monkeypatch.setattr(units, "retire", retire)
    monkeypatch.setattr(removal, "run", lambda command: users.pop(command[1]))
    monkeypatch.setattr(removal.pwd, "getpwnam", lambda name: users[name] if name == "sparkfleet" else ME)
    order = RemovalOrder(
        agent=f"{root}/opt/agent.pyz",
        releases=f"{root}/opt/releases",
        trees=tuple(f"{root}/{name}" for name in ("opt/releases", "opt/tools", "opt/vocab", "state/home")),
        asked=(),
        kept=(f"{root}/state/models", f"{root}/logs"),
        directories=tuple(f"{root}/{name}" for name in ("opt", "state", "etc", "state/models", "logs")),
    )
    made = Host(root, order, capsys)
    made.deploy()
    return made


def test_what_is_told_before_is_what_is_done(host: Host) -> None:
    told = removal.look(host.order)
    assert {UNIT, "release one", f"{host.root}/limits", "user sparkfleet", f"{host.root}/etc"} <= {*told.goes}
    assert not [thing for thing in told.goes if thing.endswith("vocab")], "it is not there"
    order = replace(host.order, directories=host.order.directories[::-1])
    assert removal.look(order) == told, "the order is that of paths"
    done = host.apply()
    assert (done["removed"], done["kept"], done["left"]) == (told.goes, told.kept, told.left)
    assert host.left() == ["logs/build.log", "state/models/llama/w"]
    assert not (host.root / "opt").exists() and not (host.root / "etc").exists()


def test_what_was_kept_is_known_later_and_can_be_removed(host: Host) -> None:
    first = host.apply()
    assert [thing.split(";")[0] for thing in first["kept"]] == [*host.order.kept]
    again = removal.look(host.order)
    assert (again.goes, again.kept, again.left, again.lost) == ((), first["kept"], (), "")
    assert host.apply(host.all)["removed"] == (*host.order.kept, f"{host.root}/state")
    assert list(host.root.iterdir()) == []
    assert removal.look(host.order) == removal.Removal()


def test_all_at_once(host: Host) -> None:
    assert removal.look(host.all).goes == host.apply(host.all)["removed"]
    assert list(host.root.iterdir()) == []


def test_what_is_theirs_stays_and_is_told(host: Host) -> None:
    (host.root / "opt" / "theirs").touch()
    (host.root / "limits").write_text("theirs")
    told = removal.look(host.order)
    assert told.left == (f"{host.root}/limits: it lacks the line '{units.MARK}'", f"{host.root}/opt: theirs")
    assert host.apply()["left"] == told.left
    assert {"limits", "opt/theirs"} <= {*host.left()}


@pytest.mark.parametrize("at", range(22))
def test_cut_off_anywhere_the_next_run_ends_it(host: Host, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """``at``: how many files and directories go before the power does."""
    calls = [0]

    def cut(name: str) -> None:
        real = getattr(os, name)

        def one(*arguments: Any, **options: Any) -> None:
            if calls[0] == at:
                raise KeyboardInterrupt
            calls[0] += 1
            real(*arguments, **options)

        cutting.setattr(os, name, one)

    with monkeypatch.context() as cutting:
        for name in ("unlink", "rmdir", "rename"):
            cut(name)
        with pytest.raises(KeyboardInterrupt):
            removal.apply(host.all, AUTHOR)
    release = host.root / "opt/releases/one"
    assert release.exists() == (release / "bin/python").exists(), "half a release is in its place"
    assert not removal.look(host.all).lost
    host.apply(host.all)
    assert list(host.root.iterdir()) == []


def test_what_cannot_be_removed_is_said_and_the_receipt_stays(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted", "python")

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refused)
        with pytest.raises(HostError, match=r"python cannot be removed \(Operation not permitted\)"):
            trees.remove(f"{host.root}/opt/releases")
    assert receipt.read()


def test_nothing_is_removed_where_the_receipt_is_lost(host: Host) -> None:
    receipt.PATH.unlink()
    before = host.left()
    assert "no receipt" in removal.look(host.all).lost
    with pytest.raises(HostError, match="no receipt"):
        removal.apply(host.all, AUTHOR)
    assert host.left() == before


def test_links_are_removed_and_not_followed(host: Host, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "file").touch()
    (host.root / "state/home/link").symlink_to(tmp_path / "theirs")
    host.apply()
    assert (tmp_path / "theirs" / "file").exists()
    assert not (host.root / "state/home").exists()


def test_a_long_removal_says_how_far_it_is(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "INTERVAL", 0.0)
    host.capsys.readouterr()
    trees.remove(f"{host.root}/state/models")
    assert re.search(r"removing .*/state/models: 1 files, 0\.00 GB are gone", host.capsys.readouterr().out)
    removal._remove_release(host.root / "opt/releases/one")
    assert "removing release one: 1 files" in host.capsys.readouterr().out


def test_what_is_no_directory_any_more_is_left_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("theirs")
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "theirs").touch()
    for name in ("file", "link", "full", "nothing"):
        trees.remove_empty(str(tmp_path / name))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["file", "full", "link"]
    said = capsys.readouterr().out.splitlines()
    assert [line.split("left ")[1] for line in said] == [
        f"{tmp_path}/file: Not a directory",
        f"{tmp_path}/link: file, full, link",
        f"{tmp_path}/full: theirs",
    ]


def test_only_a_process_of_our_user_is_in_the_way() -> None:
    me = pwd.getpwuid(os.getuid()).pw_name
    with pytest.raises(HostError, match=f"runs as {me}"):
        removal._refuse_users({"name": me, "uid": os.getuid()})
    removal._refuse_users({"name": "sparkfleet-gone", "uid": os.getuid()})
    removal._refuse_users({})
