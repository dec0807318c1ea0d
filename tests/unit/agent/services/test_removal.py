"""What is taken off a host that somebody has tidied up before."""

import os
import pwd
from pathlib import Path

import pytest

from sparkfleet.agent.errors import HostError
from sparkfleet.agent.services import removal


def test_what_is_no_directory_any_more_is_left_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("theirs")
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "theirs").touch()
    for name in ("file", "link", "full", "nothing"):
        removal._remove_empty(str(tmp_path / name))
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
