"""Files of ours are replaced as a whole or not at all."""

import grp
import os
import pwd
from pathlib import Path

import pytest

from sparkfleet.agent import account, paths, receipt
from sparkfleet.agent.errors import HostError
from sparkfleet.agent.models import weights
from sparkfleet.agent.shapes import (
    Account,
    AccountOrder,
    AccountState,
    Author,
    Directory,
    Glance,
    TextFile,
    WeightFile,
    Weights,
    WeightsOrder,
)

ME = pwd.getpwuid(os.geteuid()).pw_name
MINE = grp.getgrgid(os.getegid()).gr_name
AUTHOR = Author("r1", "ann")


def write(path: Path, content: str, mode: int = 0o600) -> None:
    paths.write(path, content, mode, ME, MINE)


def test_written_with_its_mode_and_nothing_beside_it(tmp_path: Path) -> None:
    write(tmp_path / "f", "x", 0o640)
    state = paths.look(str(tmp_path / "f"))
    assert state and (state.kind, state.mode, state.owner) == ("file", 0o640, ME)
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


def test_another_link_to_the_old_file_keeps_the_old_bytes(tmp_path: Path) -> None:
    write(tmp_path / "f", "old")
    os.link(tmp_path / "f", tmp_path / "other")
    write(tmp_path / "f", "new")
    assert (tmp_path / "other").read_text() == "old"


def test_a_failure_keeps_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "f", "old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(HostError, match="No space left"):
        write(tmp_path / "f", "new")
    assert (tmp_path / "f").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


def test_nothing_and_links_are_seen_as_they_are(tmp_path: Path) -> None:
    assert paths.look(str(tmp_path / "none")) is None
    assert paths.look(str(tmp_path / "none" / "below")) is None
    (tmp_path / "link").symlink_to("/etc/passwd")
    state = paths.look(str(tmp_path / "link"))
    assert state and state.kind == "other" and state.sha256 is None


def test_a_directory_in_the_way_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    with pytest.raises(HostError, match="expected a file, found a directory"):
        paths.ensure_file(TextFile(str(tmp_path / "f"), "x"))


def test_a_link_in_the_way_is_told(tmp_path: Path) -> None:
    (tmp_path / "d").symlink_to(tmp_path)
    with pytest.raises(HostError, match="expected a directory, found something else"):
        paths.ensure_directory(Directory(str(tmp_path / "d"), ME, MINE, 0o755))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(receipt, "PATH", tmp_path / "receipt.json")
    monkeypatch.setattr(
        receipt, "write", lambda path, content, mode: paths.write(path, content, mode, ME, MINE), raising=True
    )
    return tmp_path


def test_sections_are_replaced_and_others_kept(home: Path) -> None:
    receipt.record(AUTHOR, units={"a": {}})
    receipt.record(Author("r2", "bob"), account={"uid": 990, "gid": 991})
    summary = receipt.summary(receipt.read())
    assert summary and summary.units == ("a",)
    assert receipt.read()["account"] == {"uid": 990, "gid": 991}
    assert (summary.revision, summary.user) == ("r2", "bob")


def test_what_a_run_that_fails_has_made_is_known(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "file").touch()
    monkeypatch.setattr(account, "_ensure_user", lambda *_: None)
    monkeypatch.setattr(account, "look", lambda _: AccountState(990, 991, "/home", ()))
    monkeypatch.setattr(receipt, "PATH", home / "state" / "receipt.json")
    places = [str(home / name) for name in ("made", "file", "state")]
    order = AccountOrder(Account("sparkfleet", "/home"), tuple(Directory(one, ME, MINE, 0o755) for one in places), ())
    with pytest.raises(HostError, match="file: expected a directory, found a file"):
        account.apply(order, AUTHOR)
    assert receipt.read()["directories"] == places and receipt.read()["account"]["uid"] == 990


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "{}",
        "[" * 100_000,
        '{"schema": 1, "units": 5}',
        '{"schema": "1"}',
        '{"schema": true}',
        '{"schema": 99, "revision": "r9"}',
        '{"schema": 1, "units": {"u.service": null}}',
        '{"schema": 1, "units": {"u.service": {"files": "/etc/x"}}}',
        '{"schema": 1, "weights": {"m": {"files": {"f": [1, 2]}}}}',
        '{"schema": 1, "files": "/etc/passwd"}',
        '{"schema": 1, "directories": [7]}',
        '{"schema": 1, "account": {"created": true, "uid": "0"}}',
        '{"schema": 1, "changed_at": "yesterday"}',
        '{"schema": 1, "changed_at": NaN}',
    ],
)
def test_a_receipt_not_understood_is_refused(home: Path, content: str) -> None:
    (home / "receipt.json").write_text(content)
    with pytest.raises(HostError, match="receipt"):
        receipt.read()


def model(home: Path, content: bytes = b"weights") -> tuple[WeightsOrder, Glance]:
    source = home / "source"
    source.mkdir(exist_ok=True)
    (source / "m.safetensors").write_bytes(content)
    (source / "m.safetensors").chmod(0o600)
    file = WeightFile("m.safetensors", 7, "cdc8eae2f8a39e79d302063bcfd37e0c1f0c9f3a0f2a0a9f0a9f0a9f0a9f0a9f")
    digest = paths.sha256(source / "m.safetensors") if content == b"weights" else file.sha256
    file = WeightFile(file.name, file.size, digest)
    order = WeightsOrder((Weights("m", str(home / "m"), str(source), (file,)),))
    return order, Glance("m", str(home / "m"), (file,))


def problem(home: Path, glance: Glance) -> str:
    return weights.look(glance, receipt.read().get("weights", {})).problem


def test_weights_are_complete_only_when_checked(home: Path) -> None:
    order, glance = model(home)
    assert problem(home, glance) == "m.safetensors is missing"
    weights.apply(order, AUTHOR)
    assert problem(home, glance) == ""
    assert (home / "m" / "m.safetensors").stat().st_mode & 0o777 == 0o644
    assert [path.name for path in (home / "m").iterdir()] == ["m.safetensors"]


def test_weights_changed_on_disk_are_seen_and_laid_down_again(home: Path) -> None:
    order, glance = model(home)
    weights.apply(order, AUTHOR)
    target = home / "m" / "m.safetensors"
    target.write_bytes(b"wEights")
    assert "was changed" in problem(home, glance)
    weights.apply(order, AUTHOR)
    assert target.read_bytes() == b"weights" and problem(home, glance) == ""
    target.write_bytes(b"w")
    assert "has 1 bytes, not 7" in problem(home, glance)


def test_good_weights_are_not_copied_again(home: Path) -> None:
    order, glance = model(home)
    weights.apply(order, AUTHOR)
    inode = (home / "m" / "m.safetensors").stat().st_ino
    receipt.record(AUTHOR, weights={})  # as after a lost receipt
    assert "never checked" in problem(home, glance)
    weights.apply(order, AUTHOR)
    assert (home / "m" / "m.safetensors").stat().st_ino == inode
    assert problem(home, glance) == ""


def test_foreign_weights_are_refused_and_nothing_is_left(home: Path) -> None:
    order, _ = model(home, b"foreign")
    with pytest.raises(HostError, match="not those of the manifest"):
        weights.apply(order, AUTHOR)
    assert list((home / "m").iterdir()) == []


def test_weights_that_are_not_there(home: Path) -> None:
    order, _ = model(home)
    (home / "source" / "m.safetensors").unlink()
    with pytest.raises(HostError, match="the weights are not there"):
        weights.apply(order, AUTHOR)


def test_a_foreign_file_that_an_engine_would_load_is_seen_and_refused(home: Path) -> None:
    order, glance = model(home)
    weights.apply(order, AUTHOR)
    (home / "m" / "zz.safetensors").write_bytes(b"other")
    (home / "m" / "README.md").write_text("harmless")
    assert problem(home, glance) == "zz.safetensors is not of this model"
    with pytest.raises(HostError, match=r"zz.safetensors: not of model m"):
        weights.apply(order, AUTHOR)


def test_weights_that_their_engine_cannot_read_are_made_readable(home: Path) -> None:
    order, glance = model(home)
    weights.apply(order, AUTHOR)
    (home / "m" / "m.safetensors").chmod(0o600)
    assert problem(home, glance) == "m.safetensors cannot be read by its engine"
    weights.apply(order, AUTHOR)
    assert problem(home, glance) == ""
