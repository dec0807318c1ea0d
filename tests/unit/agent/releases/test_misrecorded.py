"""A wheel's RECORD may be wrong; the wheel, whose hash is the lock's, is not."""

import zipfile
from pathlib import Path

import pytest

from sparkfleet.agent.errors import HostError
from sparkfleet.agent.paths import sha256
from sparkfleet.agent.releases import misrecorded
from tests.unit.engines.wheels import write_wheel


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """Its RECORD is wrong about a library, and lists a file that it does not hold."""
    good = write_wheel(tmp_path, "codec", "2", {"codec/_1.so": "written first", "codec/a.py": "A = 1\n", "codec/b": ""})
    with zipfile.ZipFile(good) as archive:
        members = {one.filename: archive.read(one) for one in archive.infolist()}
    members["codec/_1.so"] = b"stripped later"
    del members["codec/b"]
    with zipfile.ZipFile(good, "w") as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return good


@pytest.fixture
def site(tmp_path: Path, wheel: Path) -> Path:
    place = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(place)
    return place


def test_the_wheels_own_bytes_are_right_whatever_its_record_says(site: Path, wheel: Path) -> None:
    found = misrecorded.find(site, {"codec": wheel})
    assert found == {"codec/_1.so": sha256(site / "codec/_1.so"), "codec/b": ""}


@pytest.mark.parametrize("path", ["codec/_1.so", "codec/a.py"])
def test_what_is_neither_the_records_nor_the_wheels_stops_the_build(site: Path, wheel: Path, path: str) -> None:
    (site / path).write_bytes(b"a bit fell over")
    with pytest.raises(HostError, match=f"{path}: expected the bytes that codec-2-py3-none-any.whl holds"):
        misrecorded.find(site, {"codec": wheel})


def test_what_uv_did_not_lay_down_stops_the_build(site: Path, wheel: Path) -> None:
    (site / "codec/a.py").unlink()
    with pytest.raises(HostError, match=r"codec/a\.py: expected the bytes"):
        misrecorded.find(site, {"codec": wheel})
