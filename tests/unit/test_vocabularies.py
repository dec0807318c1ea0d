"""Vocabularies are had from one source after the other, every byte checked, once a run, and kept."""

import hashlib
import http.server
import os
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from sparkfleet import vocabularies
from sparkfleet.agent.models import vocab as of_hosts
from sparkfleet.catalog.vocabularies import Vocabularies, Vocabulary, Wheel, catalog
from sparkfleet.cli import main
from sparkfleet.errors import UserError

if sys.version_info >= (3, 14):
    from compression.zstd import compress
else:
    from backports.zstd import compress

CONTENTS = {"o.tiktoken": b"IQ== 0\nIg== 1\n" * 100, "c.tiktoken": b"IQ== 0\nIg== 1\nIw== 2\n" * 100}


@pytest.fixture
def wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Vocabulary, ...]:
    """Two small ones, on a machine without package index whose network refuses every connection."""
    found = tuple(
        Vocabulary(
            name=name, url=f"https://127.0.0.1:9/{name}", size=len(text), sha256=hashlib.sha256(text).hexdigest()
        )
        for name, text in CONTENTS.items()
    )
    own = Vocabularies(vocabularies=found, wheel=Wheel(distribution="oss-harmony", version="0.0.11", sha256="a" * 64))
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setattr(vocabularies, "catalog", lambda: own)
    monkeypatch.setenv("SPARKFLEET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    vocabularies._packed.cache_clear()
    return found


@pytest.fixture
def given(tmp_path: Path, wanted: tuple[Vocabulary, ...]) -> Path:
    """A directory with the first under its plain name, the other under that of caches."""
    directory = tmp_path / "given"
    directory.mkdir()
    (directory / wanted[0].name).write_bytes(CONTENTS[wanted[0].name])
    (directory / wanted[1].cache_name).write_bytes(CONTENTS[wanted[1].name])
    return directory


def kept(tmp_path: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (tmp_path / "cache" / "vocabularies").iterdir()}


def test_the_catalog_has_the_names_that_the_libraries_use() -> None:
    assert {one.name: one.cache_name for one in catalog().vocabularies} == {
        "o200k_base.tiktoken": "fb374d419588a4632f3f557e76b4b70aebbca790",
        "cl100k_base.tiktoken": "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
    }


def test_what_is_given_is_taken_under_either_name_and_kept(
    tmp_path: Path, wanted: tuple[Vocabulary, ...], given: Path
) -> None:
    said: list[str] = []
    assert vocabularies.obtain(wanted, str(given), said.append) == CONTENTS
    assert kept(tmp_path) == CONTENTS
    assert vocabularies.obtain(wanted, None, said.append) == CONTENTS  # from the cache
    assert said == []


def test_a_single_file_is_known_by_its_bytes(tmp_path: Path, wanted: tuple[Vocabulary, ...]) -> None:
    (tmp_path / "x").write_bytes(CONTENTS["o.tiktoken"])
    assert vocabularies.obtain(wanted[:1], str(tmp_path / "x"), print) == {"o.tiktoken": CONTENTS["o.tiktoken"]}


def test_a_spoilt_cache_is_not_believed(tmp_path: Path, wanted: tuple[Vocabulary, ...], given: Path) -> None:
    vocabularies.obtain(wanted, str(given), print)
    (tmp_path / "cache" / "vocabularies" / "o.tiktoken").write_bytes(b"short")
    assert vocabularies.obtain(wanted, str(given), print) == CONTENTS
    assert kept(tmp_path) == CONTENTS


def test_a_given_directory_with_other_bytes_is_refused(wanted: tuple[Vocabulary, ...], given: Path) -> None:
    (given / "o.tiktoken").write_bytes(b"other")
    with pytest.raises(UserError, match=r"o.tiktoken: expected 1400 bytes .*, found 5 with"):
        vocabularies.obtain(wanted, str(given), print)


@pytest.mark.parametrize(("name", "said"), [("nowhere", "nowhere is not there"), ("x", "3 bytes that are none of")])
def test_a_place_that_cannot_be_meant_is_refused(
    tmp_path: Path, wanted: tuple[Vocabulary, ...], name: str, said: str
) -> None:
    (tmp_path / "x").write_bytes(b"abc")
    with pytest.raises(UserError, match=said):
        vocabularies.obtain(wanted, str(tmp_path / name), print)


def test_what_no_source_has_is_named_with_the_reason_of_each_and_what_to_do(
    tmp_path: Path, wanted: tuple[Vocabulary, ...], given: Path
) -> None:
    (given / "o.tiktoken").unlink()
    said: list[str] = []
    with pytest.raises(UserError) as error:
        vocabularies.obtain(wanted, str(given), said.append)
    message = str(error.value)
    assert message.startswith("o.tiktoken cannot be had. From the wheel of oss-harmony: oss-harmony")
    assert "From https://127.0.0.1:9/o.tiktoken: " in message
    assert said == ["vocabularies: from the wheel of oss-harmony 0.0.11", "vocabularies: o.tiktoken from its address"]
    assert "`sparkfleet vocab --dest DIR`" in message
    assert not (tmp_path / "cache" / "vocabularies").exists()


class Address(http.server.BaseHTTPRequestHandler):
    """Their own address, as far as it matters: the right bytes for one, others for the rest."""

    def do_GET(self) -> None:
        content = CONTENTS.get(self.path[1:], b"<html>not here</html>")
        self.send_response(200)
        self.send_header("Content-Length", str(len(content) + 10 * self.path.startswith("/cut")))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Nothing to say."""


@pytest.fixture
def address() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Address) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_their_own_address_is_believed_for_the_right_bytes_only(wanted: tuple[Vocabulary, ...], address: str) -> None:
    right, wrong, cut = (
        wanted[0].model_copy(update={"url": f"{address}/{name}"}) for name in ("o.tiktoken", "x", "cut")
    )
    assert vocabularies._downloaded([right], print) == {"o.tiktoken": CONTENTS["o.tiktoken"]}
    for one in (wrong, cut):
        with pytest.raises(
            UserError, match=f"From {one.url}: 21 bytes that are not those of the catalog|IncompleteRead"
        ):
            vocabularies._downloaded([one], print)


def test_many_hosts_ask_and_one_looks(wanted: tuple[Vocabulary, ...], given: Path) -> None:
    names = tuple(one.name for one in wanted)
    answers: list[dict[str, str]] = []
    hosts = [
        threading.Thread(target=lambda: answers.append(vocabularies.packed(names, str(given), print))) for _ in range(8)
    ]
    for host in hosts:
        host.start()
    for host in hosts:
        host.join()
    assert len(answers) == 8 and all(answer is answers[0] for answer in answers)
    assert answers[0] == {name: of_hosts.packed(content) for name, content in CONTENTS.items()}


def test_a_failure_is_the_same_for_all_hosts_of_a_run(wanted: tuple[Vocabulary, ...], tmp_path: Path) -> None:
    place = tmp_path / "later"
    for _ in range(2):
        with pytest.raises(UserError, match="later is not there"):
            vocabularies.packed(("o.tiktoken",), str(place), print)
        place.mkdir(exist_ok=True)


def test_in_a_wheel_only_the_very_bytes_are_found(tmp_path: Path, wanted: tuple[Vocabulary, ...]) -> None:
    decoys = b"\x28\xb5\x2f\xfd" + b"no frame at all" * 9
    library = decoys + compress(b"something else" * 50) + compress(CONTENTS["o.tiktoken"]) + decoys
    library += compress(b"x" * 50_000_000) + compress(CONTENTS["c.tiktoken"])[:-3]
    with zipfile.ZipFile(tmp_path / "x.whl", "w") as archive:
        archive.writestr("openai_harmony/lib.abi3.so", library)
        archive.writestr("openai_harmony/__init__.py", compress(CONTENTS["c.tiktoken"]))
    assert vocabularies.in_wheel(tmp_path / "x.whl", wanted) == {"o.tiktoken": CONTENTS["o.tiktoken"]}


def test_the_command_fills_a_directory_and_says_what_is_wrong(
    tmp_path: Path, wanted: tuple[Vocabulary, ...], given: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = CliRunner().invoke(main, ["vocab", "--dest", str(tmp_path / "out" / "deep"), "--from", str(given)])
    assert run.exit_code == 0, run.output
    assert {path.name: path.read_bytes() for path in (tmp_path / "out" / "deep").iterdir()} == CONTENTS
    monkeypatch.setenv("SPARKFLEET_CACHE", str(tmp_path / "other"))
    run = CliRunner().invoke(main, ["vocab", "--dest", str(tmp_path / "out2"), "--from", str(tmp_path / "no")])
    assert run.exit_code == 2 and "no is not there" in run.output and not (tmp_path / "out2").exists()
