"""Reading what installers wrote: METADATA and RECORD, real, odd and broken."""

import base64
import csv
import hashlib
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkfleet.agent.errors import HostError
from sparkfleet.agent.patching.records import Digest, Distribution, installed, parse_metadata, parse_record

from .sites import install

PLAIN = st.text(st.sampled_from("abcxyz_./-0123"), min_size=1).filter(lambda path: path.strip())


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
