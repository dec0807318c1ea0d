"""Files that several distributions own: the declared winner's, nothing hard-linked is touched, and it is proved."""

import hashlib
import os
from pathlib import Path

import pytest

from sparkfleet.agent.errors import HostError
from sparkfleet.agent.releases import overlaps
from sparkfleet.agent.shapes import Overlap
from tests.unit.engines.wheels import write_wheel
from tests.unit.patches.sites import install

BASE = {"cute/mma.py": "ARCHS = []\n", "cute/ir.so": "base", "cute/same.py": "SAME = 1\n", "cute/base.py": "B = 1\n"}
CU13 = {"cute/mma.py": "ARCHS = [121]\n", "cute/ir.so": "cu13", "cute/same.py": "SAME = 1\n", "cute/cu13.py": "C = 1\n"}
DECLARED = (Overlap("libs-cu13", "libs-base"),)


@pytest.fixture
def wheels(tmp_path: Path) -> dict[str, Path]:
    return {
        "libs-base": write_wheel(tmp_path, "libs-base", "4.4.2", BASE),
        "libs-cu13": write_wheel(tmp_path, "libs-cu13", "4.4.2", CU13),
    }


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A directory where the loser was laid down last."""
    site = tmp_path / "site-packages"
    install(site, "libs-cu13", "4.4.2", CU13)
    install(site, "libs-base", "4.4.2", BASE)
    return site


def test_the_winners_files_are_laid_down_and_only_those_that_are_not_there(site: Path, wheels: dict[str, Path]) -> None:
    (site / "cute/ir.so").unlink()
    (site / "cute/ir.so").write_text("cu13")  # chance had this one right
    kept = (site / "cute/ir.so").stat().st_ino
    assert overlaps.resolve(site, DECLARED, wheels) == ("cute/mma.py",)
    assert (site / "cute/mma.py").read_text() == CU13["cute/mma.py"]
    assert (site / "cute/base.py").read_text() == BASE["cute/base.py"]
    assert (site / "cute/ir.so").stat().st_ino == kept
    assert not list(site.rglob("*.sparkfleet-new"))
    assert overlaps.resolve(site, DECLARED, wheels) == ()


def test_a_file_that_shares_its_bytes_with_a_cache_is_not_written_in_place(site: Path, wheels: dict[str, Path]) -> None:
    cached = site.parent / "cached.py"
    os.link(site / "cute/mma.py", cached)
    before = cached.stat().st_mode
    overlaps.resolve(site, DECLARED, wheels)
    assert cached.read_text() == BASE["cute/mma.py"]
    assert cached.stat().st_mode == before


def test_verified_files_are_told_with_their_hashes(site: Path, wheels: dict[str, Path]) -> None:
    overlaps.resolve(site, DECLARED, wheels)
    assert overlaps.verify(site, DECLARED) == {
        path: hashlib.sha256(CU13[path].encode()).hexdigest() for path in ("cute/mma.py", "cute/ir.so")
    }


def test_the_losers_file_does_not_pass(site: Path) -> None:
    with pytest.raises(
        HostError, match=r"(mma\.py|ir\.so): expected the file of libs-cu13 by its RECORD, found another"
    ):
        overlaps.verify(site, DECLARED)


def test_a_file_that_both_have_alike_is_proved_too(site: Path, wheels: dict[str, Path]) -> None:
    overlaps.resolve(site, DECLARED, wheels)
    (site / "cute/same.py").write_text("SAME = 2\n")
    with pytest.raises(HostError, match=r"same\.py: expected the file of"):
        overlaps.verify(site, DECLARED)


def test_what_is_not_declared_stops_before_anything_is_written(site: Path, wheels: dict[str, Path]) -> None:
    install(site, "stranger", "1", {"cute/mma.py": "ARCHS = None\n"})
    for act in (lambda: overlaps.resolve(site, DECLARED, wheels), lambda: overlaps.verify(site, DECLARED)):
        with pytest.raises(HostError) as caught:
            act()
        assert "libs-base and stranger: cute/mma.py; libs-cu13 and stranger: cute/mma.py" in str(caught.value)
    assert (site / "cute/mma.py").read_text() == "ARCHS = None\n"
    assert (site / "cute/ir.so").read_text() == "base"


def test_of_three_the_one_that_nobody_beats_wins(site: Path, wheels: dict[str, Path]) -> None:
    install(site, "third", "1", {"cute/mma.py": "ARCHS = [3]\n"})
    declared = (*DECLARED, Overlap("third", "libs-cu13"), Overlap("third", "libs-base"))
    assert overlaps.resolve(site, declared, wheels) == ("cute/ir.so",)
    assert (site / "cute/mma.py").read_text() == "ARCHS = [3]\n"


def test_a_circle_is_refused(site: Path, wheels: dict[str, Path]) -> None:
    with pytest.raises(HostError, match="in a circle"):
        overlaps.resolve(site, (*DECLARED, Overlap("libs-base", "libs-cu13")), wheels)


def test_a_record_without_a_hash_proves_nothing(site: Path) -> None:
    record = site / "libs_base-4.4.2.dist-info" / "RECORD"
    record.write_text("cute/mma.py,,\n")
    with pytest.raises(HostError, match="the RECORD of libs-base has no hash for it"):
        overlaps.verify(site, DECLARED)


def test_a_winner_whose_wheel_lacks_the_file_is_named(site: Path, wheels: dict[str, Path], tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    wheels["libs-cu13"] = write_wheel(other, "libs-cu13", "4.4.2", {"cute/mma.py": CU13["cute/mma.py"]})
    with pytest.raises(HostError, match=r"ir\.so: libs-cu13's by its RECORD, but libs_cu13-4\.4\.2-.*\.whl lacks it"):
        overlaps.resolve(site, DECLARED, wheels)


class TestAfterTheSeal:
    def test_a_changed_file_is_seen(self, site: Path, wheels: dict[str, Path]) -> None:
        overlaps.resolve(site, DECLARED, wheels)
        hashes = overlaps.verify(site, DECLARED)
        assert overlaps.difference(site, hashes, {}) == ""
        (site / "cute/mma.py").write_text("ARCHS = [122]\n")  # as long as before
        assert overlaps.difference(site, hashes, {}).startswith("cute/mma.py, which several distributions own")

    def test_a_large_one_is_known_by_its_inode_size_and_time(
        self, site: Path, wheels: dict[str, Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(overlaps, "LARGE", 5)
        overlaps.resolve(site, DECLARED, wheels)
        hashes = overlaps.verify(site, DECLARED)
        marks = overlaps.marks(site, hashes)
        assert list(marks) == ["cute/mma.py"]
        assert overlaps.difference(site, hashes, marks) == ""
        install(site, "libs-cu13", "4.4.2", CU13)  # the same bytes, but somebody was here
        assert "cute/mma.py" in overlaps.difference(site, hashes, marks)
        (site / "cute/mma.py").unlink()
        assert "cute/mma.py" in overlaps.difference(site, hashes, marks)
