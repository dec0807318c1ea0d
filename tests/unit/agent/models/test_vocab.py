"""Vocabularies are right or absent, under both names, and whatever else is in their place is replaced."""

import grp
import hashlib
import os
import pwd
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sparkfleet.agent import paths, receipt, wire
from sparkfleet.agent.errors import HostError
from sparkfleet.agent.models import vocab
from sparkfleet.agent.shapes import Author, VocabOrder, Vocabularies, Vocabulary

ME = pwd.getpwuid(os.geteuid()).pw_name
MINE = grp.getgrgid(os.getegid()).gr_name
AUTHOR = Author("r1", "ann")
CONTENTS = {"o.tiktoken": b"IQ== 0\nIg== 1\n", "c.tiktoken": b"IQ== 0\nIg== 1\nIw== 2\n"}


@pytest.fixture
def order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> VocabOrder:
    monkeypatch.setattr(vocab, "OWNER", ME)
    monkeypatch.setattr(vocab, "GROUP", MINE)
    monkeypatch.setattr(receipt, "PATH", tmp_path / "receipt.json")
    monkeypatch.setattr(receipt, "write", lambda path, content, mode: paths.write(path, content, mode, ME, MINE))
    files = tuple(
        Vocabulary(name, hashlib.sha1(name.encode()).hexdigest(), len(content), hashlib.sha256(content).hexdigest())
        for name, content in CONTENTS.items()
    )
    contents = {name: vocab.packed(content) for name, content in CONTENTS.items()}
    return VocabOrder(Vocabularies(str(tmp_path / "vocab"), files), contents)


def look(order: VocabOrder) -> str:
    return vocab.look(order.wanted, receipt.read().get("vocab", {}))


def inodes(order: VocabOrder) -> dict[str, int]:
    return {path.name: path.lstat().st_ino for path in Path(order.wanted.path).iterdir()}


def test_laid_down_under_both_names_and_a_second_time_nothing_is_touched(order: VocabOrder) -> None:
    assert look(order) == "missing"
    vocab.apply(order, AUTHOR)
    assert look(order) == ""
    for file in order.wanted.files:
        for name in (file.name, file.cache_name):
            assert (Path(order.wanted.path) / name).read_bytes() == CONTENTS[file.name]
        assert (Path(order.wanted.path) / file.name).stat().st_mode & 0o7777 == 0o444
    assert len(inodes(order)) == 4
    before = inodes(order), receipt.read()
    vocab.apply(order, AUTHOR)
    assert inodes(order) == before[0]
    assert receipt.read()["vocab"] == before[1]["vocab"]


def replaced(change: Callable[[Path], object]) -> Callable[[Path], None]:
    def instead(path: Path) -> None:
        path.unlink()
        change(path)

    return instead


O_NAME, C_LINK = "o.tiktoken", hashlib.sha1(b"c.tiktoken").hexdigest()


@pytest.mark.parametrize(
    ("name", "drift", "said"),
    [
        (O_NAME, Path.unlink, "o.tiktoken is missing"),
        (O_NAME, replaced(lambda path: path.write_bytes(b"IQ== 0\n")), "o.tiktoken has 7 bytes, not 14"),
        (O_NAME, replaced(lambda path: path.write_bytes(b"IQ== 0\nIg== 2\n")), "o.tiktoken has other bytes"),
        (O_NAME, replaced(lambda path: path.symlink_to("c.tiktoken")), "o.tiktoken is not a file"),
        (O_NAME, lambda path: path.chmod(0o644), "o.tiktoken is of user"),
        (C_LINK, Path.unlink, f"{C_LINK} is missing"),
        (C_LINK, replaced(lambda path: path.symlink_to(O_NAME)), f"{C_LINK} leads elsewhere"),
        (C_LINK, replaced(lambda path: path.write_bytes(b"x")), f"{C_LINK} is not the link"),
        (".", lambda path: path.chmod(0o777), "it is of user"),
    ],
)
def test_drift_is_named_and_only_that_is_mended(
    order: VocabOrder, name: str, drift: Callable[[Path], object], said: str
) -> None:
    vocab.apply(order, AUTHOR)
    before = inodes(order)
    drift(Path(order.wanted.path) / name)
    assert look(order).startswith(said)
    vocab.apply(order, AUTHOR)
    assert look(order) == ""
    assert {one for one, inode in inodes(order).items() if before[one] != inode} <= {name}


def test_no_other_link_to_a_foreign_file_is_written_through(order: VocabOrder, tmp_path: Path) -> None:
    vocab.apply(order, AUTHOR)
    (tmp_path / "theirs").write_bytes(b"theirs")
    place = Path(order.wanted.path) / O_NAME
    place.unlink()
    os.link(tmp_path / "theirs", place)
    vocab.apply(order, AUTHOR)
    assert look(order) == "" and (tmp_path / "theirs").read_bytes() == b"theirs"


def test_what_an_order_carries_is_checked_before_anything_is_replaced(order: VocabOrder) -> None:
    vocab.apply(order, AUTHOR)
    place = Path(order.wanted.path) / O_NAME
    place.unlink()
    place.write_bytes(b"old")
    for carried in ("", "AAAA", "not base64", vocab.packed(b"IQ== 0\nIg== 2\n"), vocab.packed(b"0" * 10_000_000)):
        with pytest.raises(HostError, match=r"o\.tiktoken: .* Run again\."):
            vocab.apply(replace(order, contents={**order.contents, O_NAME: carried}), AUTHOR)
        assert place.read_bytes() == b"old"


def test_the_receipt_alone_tells_what_should_be_there(order: VocabOrder) -> None:
    vocab.apply(order, AUTHOR)
    remembered = wire.build(Vocabularies, receipt.read()["vocab"])
    assert remembered == order.wanted and vocab.problem(remembered) == ""


def test_a_lost_receipt_is_written_again(order: VocabOrder) -> None:
    vocab.apply(order, AUTHOR)
    before = inodes(order)
    receipt.PATH.unlink()
    assert look(order) == "not in the receipt"
    vocab.apply(order, AUTHOR)
    assert look(order) == "" and inodes(order) == before


def test_nothing_wanted_is_nothing_done(order: VocabOrder) -> None:
    none = VocabOrder(replace(order.wanted, files=()), {})
    vocab.apply(none, AUTHOR)
    assert look(none) == "" and vocab.problem(none.wanted) == ""
    assert not Path(order.wanted.path).exists() and not receipt.PATH.exists()


KILLED = """
import os, sys
from pathlib import Path
from sparkfleet.agent import paths, receipt, wire
from sparkfleet.agent.models import vocab
from sparkfleet.agent.shapes import Author, VocabOrder
vocab.OWNER, vocab.GROUP, receipt.PATH = sys.argv[2], sys.argv[3], Path(sys.argv[4])
left = int(sys.argv[1])
def audit(event, arguments):
    global left
    changes = event in ("os.rename", "os.symlink", "os.mkdir", "os.remove")
    if changes or event == "open" and ".sparkfleet-new" in str(arguments[0]):
        left -= 1
        if left < 0:
            os._exit(9)
sys.addaudithook(audit)
write = receipt.write
receipt.write = lambda path, content, mode: write(path, content, mode, sys.argv[2], sys.argv[3])
vocab.apply(wire.decode(VocabOrder, sys.stdin.read()), Author("r1", "ann"))
"""


def test_killed_at_any_step_it_says_what_is_left_to_do_and_the_next_run_does_it(order: VocabOrder) -> None:
    directory = Path(order.wanted.path)
    for step in range(100):
        for path in (*directory.glob("*"), *directory.glob(".*")) if directory.exists() else ():
            path.unlink()
        receipt.PATH.unlink(missing_ok=True)
        command = [sys.executable, "-c", KILLED, str(step), ME, MINE, str(receipt.PATH)]
        done = subprocess.run(command, input=wire.encode(order), text=True, capture_output=True)
        if done.returncode == 0:
            assert step > 8, "it was never killed between its steps"
            break
        assert done.returncode == 9, done.stderr
        assert look(order) != ""
        for file in order.wanted.files:  # complete or absent
            place = directory / file.name
            assert not place.exists() or place.read_bytes() == CONTENTS[file.name]
        vocab.apply(order, AUTHOR)
        assert look(order) == ""
        assert sorted(inodes(order)) == sorted(n for f in order.wanted.files for n in (f.name, f.cache_name))
    else:
        pytest.fail("it was killed a hundred times")
