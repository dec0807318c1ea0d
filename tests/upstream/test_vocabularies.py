"""The real openai-harmony, oss-harmony and tiktoken, with the network cut: what each finds in what we lay down."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkfleet import vocabularies
from sparkfleet.agent import receipt
from sparkfleet.agent.models import vocab
from sparkfleet.agent.shapes import Author, VocabOrder, Vocabularies, Vocabulary
from sparkfleet.catalog.engines import engine
from sparkfleet.catalog.recipes import recipe
from sparkfleet.catalog.vocabularies import catalog
from sparkfleet.harmony import DIRECTORY, environment
from sparkfleet.pins import Pin
from sparkfleet.pip import pip_for

from .wheels import make_venv, pip

pytestmark = pytest.mark.upstream

#: Never both in one: they bring the same module.
OPENAI = ("openai-harmony==0.0.8", "tiktoken==0.14.0")
OSS = ("oss-harmony==0.0.11",)

O200K, CL100K = "o200k_base.tiktoken", "cl100k_base.tiktoken"
TEXT = "What is 12*17?"
TOKENS = "[4827, 382, 220, 899, 9, 1422, 30]"  # of o200k_base

HARMONY = (
    "from openai_harmony import HarmonyEncodingName, load_harmony_encoding\n"
    "encoding = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)\n"
    f"print(encoding.encode({TEXT!r}))"
)
TIKTOKEN = "import sys, tiktoken; print(tiktoken.get_encoding({!r}).encode({!r}))"


def python(*requirements: str) -> Path:
    """The Python of a virtual environment of the cache with only these and what they need."""
    directory = make_venv(f"vocab-{requirements[0].replace('==', '-')}")
    if not (directory / "installed").exists():
        pip(directory, "install", *requirements)
        (directory / "installed").touch()
    return directory / "bin" / "python"


class Unit:
    """Runs code as a unit would: no network, an environment of its own, and no right to write what is another's.

    Root without the power to go over permissions, so that it is still let into the cache, wherever that is.
    """

    def __init__(self, home: Path) -> None:
        self.home = home

    def run(
        self, code: str, requirements: tuple[str, ...], **variables: str | Path
    ) -> subprocess.CompletedProcess[str]:
        cut = ("unshare", "--net", "setpriv", "--bounding-set=-dac_override,-dac_read_search,-fowner")
        own = {"PATH": os.environ["PATH"], "HOME": str(self.home), "TMPDIR": str(self.home)}
        own |= {name: str(value) for name, value in variables.items()}
        command = (*cut, str(python(*requirements)), "-I", "-c", code)
        return subprocess.run(command, env=own, cwd=self.home, capture_output=True, text=True, timeout=300)

    def says(self, code: str, requirements: tuple[str, ...], **variables: str | Path) -> str:
        done = self.run(code, requirements, **variables)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def fails(self, code: str, requirements: tuple[str, ...], **variables: str | Path) -> str:
        done = self.run(code, requirements, **variables)
        assert done.returncode != 0, f"it works: {done.stdout}"
        return done.stderr.strip().splitlines()[-1]


@pytest.fixture
def unit(tmp_path: Path) -> Unit:
    home = tmp_path / "home"
    home.mkdir()
    return Unit(home)


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[vocabularies.Contents]:
    """Rebuilt from the wheel that the catalog names, by way of the package index."""
    said: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARKFLEET_CACHE", str(tmp_path_factory.mktemp("cache")))
        found = vocabularies.obtain(catalog().vocabularies, None, said.append)
    assert said == ["vocabularies: from the wheel of oss-harmony 0.0.11"]
    yield found


@pytest.fixture
def order(contents: vocabularies.Contents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> VocabOrder:
    """Laid down by the agent, owned by somebody who is not the unit's user."""
    monkeypatch.setattr(vocab, "OWNER", "nobody")
    monkeypatch.setattr(vocab, "GROUP", "nogroup")
    monkeypatch.setattr(receipt, "PATH", tmp_path / "receipt.json")
    files = tuple(Vocabulary(one.name, one.cache_name, one.size, one.sha256) for one in catalog().vocabularies)
    order = VocabOrder(
        Vocabularies(str(tmp_path / "vocab"), files), {name: vocab.packed(text) for name, text in contents.items()}
    )
    vocab.apply(order, Author("r1", "ann"))
    return order


@pytest.fixture
def place(order: VocabOrder) -> Path:
    return Path(order.wanted.path)


def variables(place: Path) -> dict[str, Path]:
    """What the plan sets for gpt-oss on an engine with openai-harmony, for another directory."""
    wanted = environment(recipe("gpt-oss-120b"), engine("vllm-0.20.1"))
    return {name: place for name, value in wanted.items() if value == DIRECTORY}


def test_the_wheel_of_another_architecture_has_the_same_bytes(contents: vocabularies.Contents, tmp_path: Path) -> None:
    with pip_for("3.12", "x86_64", 35) as downloader:
        downloader.download([Pin("oss-harmony", "0.0.11", "", ())], tmp_path, hashed=False)
    (wheel,) = tmp_path.glob("*x86_64.whl")
    assert vocabularies.in_wheel(wheel, catalog().vocabularies) == contents


def test_without_them_neither_library_starts(unit: Unit) -> None:
    assert "HarmonyError" in unit.fails(HARMONY, OPENAI)
    assert "ConnectionError" in unit.fails(TIKTOKEN.format("o200k_base", TEXT), OPENAI)


def test_with_them_both_start_and_encode(unit: Unit, place: Path) -> None:
    before = {path.name: path.lstat().st_mtime_ns for path in place.iterdir()}
    assert unit.says(HARMONY, OPENAI, **variables(place)) == TOKENS
    assert unit.says(TIKTOKEN.format("o200k_base", TEXT), OPENAI, **variables(place)) == TOKENS
    assert unit.says(TIKTOKEN.format("cl100k_base", TEXT), OPENAI, **variables(place)) != TOKENS
    assert {path.name: path.lstat().st_mtime_ns for path in place.iterdir()} == before


def test_each_variable_is_needed(unit: Unit, place: Path) -> None:
    rust, python_ = ("TIKTOKEN_RS_CACHE_DIR", "TIKTOKEN_CACHE_DIR")
    assert set(variables(place)) == {rust, python_}
    unit.fails(HARMONY, OPENAI, **{python_: place})
    unit.fails(TIKTOKEN.format("o200k_base", TEXT), OPENAI, **{rust: place})


def test_a_truncated_file_stays_for_us_to_mend_because_a_unit_cannot_write_there(
    unit: Unit, order: VocabOrder, place: Path, tmp_path: Path
) -> None:
    content = (place / O200K).read_bytes()
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / catalog().vocabularies[0].cache_name).write_bytes(content[:-100])
    unit.fails(HARMONY, OPENAI, TIKTOKEN_RS_CACHE_DIR=theirs)
    assert list(theirs.iterdir()) == []  # what openai-harmony does where it may

    (place / O200K).unlink()
    (place / O200K).write_bytes(content[:-100])
    assert "HarmonyError" in unit.fails(HARMONY, OPENAI, **variables(place))
    assert len(list(place.iterdir())) == 4
    assert vocab.problem(order.wanted) == f"{O200K} has 3613822 bytes, not 3613922"
    vocab.apply(order, Author("r1", "ann"))
    assert vocab.problem(order.wanted) == ""
    assert unit.says(HARMONY, OPENAI, **variables(place)) == TOKENS


def test_a_foreign_file_is_replaced(unit: Unit, order: VocabOrder, place: Path) -> None:
    content = bytearray((place / O200K).read_bytes())
    content[1000] ^= 1
    (place / O200K).unlink()
    (place / O200K).write_bytes(content)
    unit.fails(HARMONY, OPENAI, **variables(place))
    assert vocab.problem(order.wanted) == f"{O200K} has other bytes than it should"
    vocab.apply(order, Author("r1", "ann"))
    assert unit.says(HARMONY, OPENAI, **variables(place)) == TOKENS


@pytest.mark.parametrize("requirements", [OPENAI, OSS])
def test_a_base_without_the_file_wins_over_everything_and_is_refused_by_the_plan_for_that(
    unit: Unit, place: Path, tmp_path: Path, requirements: tuple[str, ...]
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "HarmonyError" in unit.fails(HARMONY, requirements, TIKTOKEN_ENCODINGS_BASE=empty, **variables(place))
    assert unit.says(HARMONY, requirements, TIKTOKEN_ENCODINGS_BASE=place) == TOKENS


def test_oss_harmony_needs_nothing(unit: Unit) -> None:
    assert unit.says(HARMONY, OSS) == TOKENS
