"""What the owner of a directory can do to root, who changes something in it: nothing."""

import os
import pwd
from pathlib import Path
from typing import Any

import pytest

from sparkfleet.agent import account, receipt
from sparkfleet.agent.errors import HostError
from sparkfleet.agent.models import weights
from sparkfleet.agent.models.hub_shapes import HubFile
from sparkfleet.agent.models.incoming import Staging
from sparkfleet.agent.shapes import Author, Directory, Weights, WeightsOrder

ME = pwd.getpwuid(os.geteuid())


def test_a_directory_exchanged_for_a_link_while_it_is_handed_over_leads_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, outside = tmp_path / "home", tmp_path / "outside"
    for directory in (home / "inner", outside):
        directory.mkdir(parents=True)
        for name in ("a", "b"):
            (directory / name).write_text(name)
    touched: list[int] = []
    swapped = False

    def chown(path: Any, *_: int, dir_fd: int | None = None, follow_symlinks: bool = True) -> None:
        nonlocal swapped
        touched.append(os.stat(path, dir_fd=dir_fd, follow_symlinks=follow_symlinks).st_ino)
        if Path(path).name in ("a", "b") and not swapped:
            swapped = True
            (home / "inner").rename(home / "moved")
            (home / "inner").symlink_to(outside)

    monkeypatch.setattr(account.pwd, "getpwnam", lambda _: ME)
    monkeypatch.setattr(account.grp, "getgrnam", lambda _: account.grp.getgrgid(ME.pw_gid))
    monkeypatch.setattr(account.os, "chown", chown)
    account._hand_over(Directory(str(home), "somebody", "somebody", 0o750))
    assert swapped and len(touched) == 3
    assert not {path.stat().st_ino for path in outside.iterdir()} & set(touched)


@pytest.mark.parametrize("kind", ["pipe", "link", "directory", "hard link"])
def test_what_is_no_plain_file_of_the_fetching_user_is_never_taken(tmp_path: Path, kind: str) -> None:
    staging = Staging(tmp_path / "incoming", ME.pw_name)
    staging.prepare()
    file = HubFile("m.json", 0, "sha256-" + "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
    place, other = staging.partial / file.key, tmp_path / "other"
    other.write_text("")
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "link":
        place.symlink_to(other)
    elif kind == "directory":
        (place / "x").mkdir(parents=True)
    else:
        place.hardlink_to(other)
    assert not staging.take(file)
    assert other.exists() and staging.whole() == {}
    place.write_text("")
    assert staging.take(file) and set(staging.whole()) == {file.key}


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to other users")
def test_a_link_in_somebodys_directory_does_not_publish_a_private_file_of_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipt, "PATH", tmp_path / "receipt.json")
    private, source = tmp_path / "shadow", tmp_path / "source"
    private.write_text("s3cret")
    private.chmod(0o600)
    source.mkdir()
    (source / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    (source / "config.json").symlink_to(private)
    order = WeightsOrder((Weights("m", str(tmp_path / "m"), str(source), ()),))
    os.chown(source, 65534, 65534)
    with pytest.raises(HostError, match=r"config\.json: it is a private file of another user"):
        weights.apply(order, Author("r", "ann"))
    assert not (tmp_path / "m" / "config.json").exists()
    private.chmod(0o644)
    weights.apply(order, Author("r", "ann"))
    assert (tmp_path / "m" / "config.json").read_text() == "s3cret"
