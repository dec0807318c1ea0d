"""Reading what installers wrote: METADATA and RECORD, real, odd and broken."""

import base64
import csv
import hashlib
import io
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkfleet.agent.errors import HostError
from sparkfleet.agent.patching.records import Digest, Distribution, installed, parse_metadata, parse_record

from .sites import install

PLAIN = st.text(st.sampled_from("abcxyz_./-0123"), min_size=1).filter(lambda path: path == os.path.normpath(path))


@given(st.text())
def test_any_text_is_a_record_or_is_left_out(text: str) -> None:
    for path, digest in parse_record(text).items():
        assert path and (digest is None or digest.algorithm.startswith("sha"))


@given(st.text())
def test_any_text_is_a_metadata(text: str) -> None:
    assert all(name == name.lower().strip() for name in parse_metadata(text))


@given(st.dictionaries(PLAIN, st.binary(max_size=20), max_size=8), st.sampled_from(["\n", "\r\n"]))
def test_what_an_installer_writes_is_what_is_read(files: dict[str, bytes], end: str) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator=end)
    for path, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        writer.writerow([path, f"sha256={digest}", len(data)])
    expected = {path: Digest("sha256", hashlib.sha256(data).digest(), len(data)) for path, data in files.items()}
    assert parse_record(text.getvalue()) == expected
    one = Distribution("d", "1", Path("/nonexistent"), text.getvalue().encode())
    for path in files:
        assert one.lists(path) and one.digest(path) == expected[path]
    assert not one.lists("not/there.py") and one.digest("not/there.py") is None


DIGEST = "sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"


@pytest.mark.parametrize(
    "record",
    [
        '"a/b.py",{d},0\n',
        '"a/b.py","{d}","0"\r\n',
        "./a/b.py,{d},0\n",
        "a//b.py,{d},0\n",
        "a\\b.py,{d},0\n",
        ".\\a\\b.py,{d},0\n",
        "\ufeffa/b.py,{d},0\n",
        '\ufeff"./a/b.py",{d},0\n',
        "x.py,,\ra/b.py,{d},0\ry.py,,\r",
        "a/b.py,{d},0\rx.py,,\r",
        '"broken/b.py,,\n"a/b.py",{d},0\n',
    ],
)
def test_other_ways_to_write_the_same_path(record: str) -> None:
    one = Distribution("d", "1", Path("/nonexistent"), record.format(d=DIGEST).encode())
    assert one.lists("a/b.py") and one.digest("a/b.py") == Digest("sha256", hashlib.sha256(b"").digest(), 0)
    assert not one.lists("b.py") and not one.unreadable()


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ("", "lists no file of the package"),
        ("d-1.dist-info/RECORD,,\n../../../bin/d,,\n", "lists no file of the package"),
        ("__editable__.d-1.pth,,\nd-1.dist-info/RECORD,,\n", "is an editable install"),
        ("d/a.py,,\n", ""),
        ("d.py,,\n", ""),
    ],
)
def test_a_record_that_does_not_say_where_the_files_are(record: str, says: str) -> None:
    said = Distribution("d", "1", Path("/nonexistent"), record.encode()).unreadable()
    assert says in said and bool(says) == bool(said)


@pytest.mark.parametrize("origin", ["", "[]", "{", '{"dir_info": 1}', '{"dir_info": {"editable": false}}', "\udcff"])
def test_an_origin_that_is_not_editable(tmp_path: Path, origin: str) -> None:
    (tmp_path / "direct_url.json").write_bytes(origin.encode(errors="surrogateescape"))
    assert not Distribution("d", "1", tmp_path, b"d/a.py,,\n").unreadable()


def test_a_path_is_found_whole_and_nowhere_else() -> None:
    record = (
        "xa/b.py,sha256=AAAA,1\na/b.py.bak,sha256=AAAA,1\na/b.py,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0"
    )
    digest = Distribution("d", "1", Path("/"), record.encode()).digest("a/b.py")
    assert digest == Digest("sha256", hashlib.sha256(b"").digest(), 0)
    assert not Distribution("d", "1", Path("/"), record.encode()).lists("b.py")


@pytest.mark.parametrize("hash_", ["", "md5=abc", "sha1=abc", "sha256", "sha256=", "sha256=é", "sha256=A"])
def test_hashes_that_prove_nothing(hash_: str) -> None:
    assert parse_record(f"a.py,{hash_},1\n") == {"a.py": None}


def test_headers_end_where_the_description_begins() -> None:
    text = "Name: a\r\nVersion: 1\r\nSummary: x\r\n  Version: folded\r\nVersion: 2\r\n\r\nVersion: 3\r\n"
    assert parse_metadata(text) == {"name": "a", "version": "1", "summary": "x"}


def test_only_what_is_asked_for_is_read(tmp_path: Path) -> None:
    install(tmp_path, "vllm", "0.20.1", {"vllm/a.py": ""})
    install(tmp_path, "vllm-router", "0.1", {"router/a.py": ""})
    (tmp_path / "broken-1.0.dist-info").mkdir()
    found = installed(tmp_path, frozenset({"vllm"}))
    assert [(name, one.version) for name, many in found.items() for one in many] == [("vllm", "0.20.1")]
    with pytest.raises(HostError, match="METADATA: cannot be read"):
        installed(tmp_path, frozenset({"broken"}))
    (tmp_path / "broken-1.0.dist-info/METADATA").write_text("Name: broken\n")
    with pytest.raises(HostError, match="no Name or no Version"):
        installed(tmp_path, frozenset({"broken"}))
