"""Locks: the committed ones are whole and name no place; made anew they are the same, or what differs is named."""

import hashlib
import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from sparkfleet import plan
from sparkfleet.agent.releases.lock_file import parse
from sparkfleet.catalog import engines
from sparkfleet.catalog.engines import Engine, Source, Target
from sparkfleet.cli import lock as command
from sparkfleet.errors import UserError
from sparkfleet.locking import lock, uv
from sparkfleet.locking.uv import Wheel
from sparkfleet.settings import settings
from tests.unit.builders import DATA
from tests.unit.engines.wheels import engine, write_wheel

LOCKED = sorted(path for path in engines.ENGINES.glob("vllm-[0-9]*.lock"))


@pytest.mark.parametrize("path", LOCKED, ids=lambda path: path.name)
class TestCommitted:
    def test_each_pin_is_one_file_of_which_the_size_is_known(self, path: Path) -> None:
        text = path.read_text(encoding="utf-8")
        pins = parse(text)
        assert all(len(pin.hashes) == 1 for pin in pins)
        assert len(engines.wheels(text)) == len(pins) == len({pin.name for pin in pins})
        assert all(size > 0 for size in engines.wheels(text).values())

    def test_no_address_is_in_it(self, path: Path) -> None:
        text = path.read_text(encoding="utf-8")
        assert "://" not in text and "index-url" not in text and "find-links" not in text and "@" not in text

    def test_it_is_what_the_engine_pins_and_names_what_overlaps(self, path: Path) -> None:
        engine = engines.engine(path.stem)
        pins = {pin.name: pin.version for pin in parse(path.read_text(encoding="utf-8"))}
        assert {name: pins.get(name) for name in engine.pins} == dict(engine.pins)
        assert {name for one in engine.overlaps for name in (one.winner, one.loser)} <= set(pins)
        assert engine.harmony in pins and not {"openai-harmony", "oss-harmony"} - {engine.harmony} & set(pins)

    def test_its_wheels_are_for_the_target(self, path: Path) -> None:
        for name in engines.wheels(path.read_text(encoding="utf-8")):
            assert name.endswith("any.whl") or "aarch64" in name


class TestChoice:
    def choose(self, *files: str) -> str:
        rows = [{"url": f"x://h/{name}", "size": 1, "hashes": {"sha256": "a" * 64}} for name in files]
        found = uv._wheel({"name": "A_b", "version": "1", "wheels": rows}, uv.ranks(Target()), engine())
        assert found.name == "a-b"
        return found.file

    def test_compiled_for_the_target_before_pure(self) -> None:
        assert "cp312" in self.choose("a_b-1-py3-none-any.whl", "a_b-1-cp312-cp312-manylinux_2_17_aarch64.whl")

    def test_the_newest_glibc_that_the_target_has(self) -> None:
        files = [f"a_b-1-cp39-abi3-manylinux_2_{one}_aarch64.whl" for one in (17, 34, 28, 39)]
        assert "2_34" in self.choose(*files)

    def test_the_highest_build_of_a_version(self) -> None:
        files = [f"a_b-1{build}-cp38-abi3-manylinux_2_35_aarch64.whl" for build in ("", "-2", "-10", "-1")]
        assert "-10-" in self.choose(*files)

    def test_a_name_with_an_escaped_sign(self) -> None:
        assert self.choose("a_b-1%2Bcu130-py3-none-any.whl") == "a_b-1+cu130-py3-none-any.whl"

    def test_none_for_the_target_is_said(self) -> None:
        with pytest.raises(UserError, match="a-b 1: its index has no wheel for aarch64-manylinux_2_35"):
            self.choose("a_b-1-cp312-cp312-manylinux_2_39_aarch64.whl", "a_b-1-cp312-cp312-win_amd64.whl")

    def test_without_a_hash_it_cannot_be_locked(self) -> None:
        rows = [{"url": "x://h/a_b-1-py3-none-any.whl"}]
        with pytest.raises(UserError, match="gives no SHA-256"):
            uv._wheel({"name": "a-b", "version": "1", "wheels": rows}, uv.ranks(Target()), engine())


class TestGiven:
    def test_a_local_version_is_taken_where_the_pin_has_none(self, tmp_path: Path) -> None:
        assert uv.given_version("vllm", "0.17.1", write_wheel(tmp_path, "vllm", "0.17.1+fork")) == "0.17.1+fork"
        assert uv.given_version("vllm", "0.17.1+cu130", write_wheel(tmp_path, "vllm", "0.17.1+cu130")) == "0.17.1+cu130"

    @pytest.mark.parametrize(
        ("name", "version"),
        [("vllm", "0.17.2"), ("vllm", "0.17.1"), ("torch", "0.17.1+cu130"), ("vllm", "0.17.1+cu126")],
    )
    def test_another_is_refused(self, tmp_path: Path, name: str, version: str) -> None:
        with pytest.raises(UserError, match=r"expected the wheel of vllm 0\.17\.1\+cu130; by its file name it is"):
            uv.given_version("vllm", "0.17.1+cu130", write_wheel(tmp_path, name, version))

    def test_what_is_not_there_or_no_wheel_is_said(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="no such file"):
            uv.given_version("vllm", "1", tmp_path / "none.whl")
        (tmp_path / "x.whl").touch()
        with pytest.raises(UserError, match="this is none"):
            uv.given_version("vllm", "1", tmp_path / "x.whl")

    def test_all_that_only_the_user_knows_is_asked_for_with_the_command(self, here: Path) -> None:
        wanted = engine(sources=[Source(distribution="vllm", kind="wheel", what="a wheel of yours")])
        with pytest.raises(UserError, match="sparkfleet lock vllm-9 --source vllm=WHEEL` with vllm: a wheel of yours"):
            lock.make(wanted)
        with pytest.raises(UserError, match="--source torch: engine vllm-9 takes it from the package index"):
            lock.make(engine(), {"torch": "x"})
        assert command.sources(("torch=a=b",)) == {"torch": "a=b"}
        with pytest.raises(UserError, match="expected NAME=PLACE"):
            command.sources(("torch",))

    def test_an_address_cannot_smuggle_a_setting_in(self) -> None:
        with pytest.raises(UserError, match="expected the address of an index"):
            uv._quoted('x"\n[tool.uv]')


CLOSURE = (
    Wheel("alpha", "1", "alpha-1-py3-none-any.whl", 10, "a" * 64),
    Wheel("vllm", "9", "vllm-9.whl", 20, "b" * 64),
)


class TestFiles:
    def test_a_lock_says_file_and_bytes_of_each_pin(self) -> None:
        text = lock.render(engine(), CLOSURE)
        assert text.startswith(
            "# vllm-9: 2 wheels, 0.00 GB, for CPython 3.12 on Linux aarch64 with glibc 2.35 or newer."
        )
        assert engines.wheels(text) == {"alpha-1-py3-none-any.whl": 10, "vllm-9.whl": 20}
        assert [(pin.name, pin.version, set(pin.hashes)) for pin in parse(text)] == [
            ("alpha", "1", {"a" * 64}),
            ("vllm", "9", {"b" * 64}),
        ]

    def test_what_differs_is_named(self, here: Path) -> None:
        wanted = engine()
        old = (Wheel("alpha", "0.9", "alpha.whl", 1, "c" * 64), CLOSURE[1], Wheel("gone", "1", "g.whl", 1, "d" * 64))
        known = {"flags": {"--a": {"type": "int"}, "--b": {"type": "str"}}, "environment": {}}
        lock.write({wanted.lock: lock.render(wanted, old), wanted.knowledge: json.dumps(known)})
        known["flags"]["--a"]["type"] = "float"
        found = lock.differences({wanted.lock: lock.render(wanted, CLOSURE), wanted.knowledge: json.dumps(known)})
        assert found == [
            "vllm-9.lock: alpha: committed 0.9 (cccccccccccc), resolved 1 (aaaaaaaaaaaa)",
            "vllm-9.lock: gone: committed 1 (dddddddddddd), resolved nothing",
            "vllm-9.knowledge.json: --a differs",
        ]
        assert lock.differences({wanted.lock: lock.render(wanted, old)}) == []
        assert lock.differences({here / "other.lock": ""}) == ["other.lock: missing"]

    def test_an_overlap_that_is_not_in_the_closure_is_refused(self) -> None:
        wanted = engine(overlaps=[{"winner": "alpha", "loser": "beta", "why": "x"}])
        with pytest.raises(UserError, match="overlaps: beta is not in the closure"):
            lock._check_overlaps(wanted, CLOSURE)


@pytest.fixture
def given(here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Engine, Path]:
    """An engine of one wheel that the user gives, and that wheel, with a vLLM in it."""
    monkeypatch.setenv("SPARKFLEET_CACHE", str(tmp_path / "cache"))
    files = {
        "vllm/envs.py": "environment_variables = {'VLLM_PORT': lambda: int(os.getenv('VLLM_PORT'))}\n",
        "vllm/reasoning/__init__.py": "_REASONING_PARSERS_TO_REGISTER = {}\n",
        "vllm/tool_parsers/__init__.py": "_TOOL_PARSERS_TO_REGISTER = {}\n",
        "vllm/entrypoints/cli/serve.py": "def make_arg_parser(parser):\n    parser.add_argument('--port', type=int)\n",
    }
    wheel = write_wheel(tmp_path, "vllm", "9+mine", files)
    (here / "vllm-9.yaml").write_text(
        "name: vllm-9\ntitle: t\npython: ['3.12']\npins: {vllm: '9'}\n"
        "sources: [{distribution: vllm, kind: wheel, what: yours}]\n"
    )
    return engines.engine("vllm-9"), wheel


def test_the_command_makes_both_files_and_then_agrees_with_them(
    given: tuple[Engine, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, wheel = given
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    found = Wheel("vllm", "9+mine", wheel.name, wheel.stat().st_size, digest)
    monkeypatch.setattr(lock, "resolve", lambda *_: (found,))
    call = ["vllm-9", "--source", f"vllm={wheel}"]
    checked = CliRunner().invoke(command.command, [*call, "--check"])
    assert (checked.exit_code, wanted.lock.exists()) == (1, False)
    assert "vllm-9.lock: missing" in checked.output
    assert CliRunner().invoke(command.command, call).exit_code == 0
    assert json.loads(wanted.knowledge.read_text())["flags"] == {"--port": {"type": "int"}}
    assert CliRunner().invoke(command.command, [*call, "--check"]).exit_code == 0
    wanted.lock.write_text(wanted.lock.read_text().replace("9+mine", "8"))
    checked = CliRunner().invoke(command.command, [*call, "--check"])
    assert checked.exit_code == 1 and "vllm: committed 8" in checked.output
    assert CliRunner().invoke(command.command, ["vllm-9"]).exit_code == 2


def test_a_wheel_that_is_not_the_locks_is_not_read(given: tuple[Engine, Path]) -> None:
    wanted, wheel = given
    other = Wheel("vllm", "9+mine", wheel.name, 1, "0" * 64)
    with pytest.raises(UserError, match="not those of the lock"):
        lock._sources_of(wanted, other, str(wheel), lambda line: None)


def test_uv_itself_resolves_a_given_wheel_offline(given: tuple[Engine, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        uv.find_uv()
    except UserError:
        pytest.skip("no uv here")
    wanted, wheel = given
    monkeypatch.setenv("UV_OFFLINE", "1")
    (found,) = uv.resolve(wanted, {"vllm": str(wheel)}, {}, ())
    assert (found.name, found.version, found.file) == ("vllm", "9+mine", wheel.name)
    assert (found.sha256, found.size) == (hashlib.sha256(wheel.read_bytes()).hexdigest(), wheel.stat().st_size)


def test_uv_itself_takes_from_a_given_index_what_it_is_given_for(
    given: tuple[Engine, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        uv.find_uv()
    except UserError:
        pytest.skip("no uv here")
    (tmp_path / "simple" / "torch").mkdir(parents=True)
    torch = write_wheel(tmp_path / "simple" / "torch", "torch", "2.10.0+cu130")
    digest = hashlib.sha256(torch.read_bytes()).hexdigest()
    link = f'<a href="{torch.name.replace("+", "%2B")}#sha256={digest}">{torch.name}</a>'
    (tmp_path / "simple" / "torch" / "index.html").write_text(link)
    wanted = engine(
        pins={"vllm": "9", "torch": "2.10.0+cu130"},
        sources=[*given[0].sources, Source(distribution="torch", kind="index", what="CUDA")],
    )
    monkeypatch.setenv("UV_OFFLINE", "1")
    places = {"vllm": str(given[1]), "torch": (tmp_path / "simple").as_uri()}
    found, _ = uv.resolve(wanted, places, {}, ())
    assert (found.version, found.file, found.sha256) == ("2.10.0+cu130", torch.name, digest)
    # such an index says no size: room is then kept for a large one
    assert engines.wheels(lock.render(wanted, [found])) == {torch.name: engines.UNKNOWN_WHEEL}


def test_an_engine_without_a_lock_is_refused_with_the_command_that_makes_one(given: tuple[Engine, Path]) -> None:
    with pytest.raises(UserError) as error:
        plan._lock(settings("spark-7d19", DATA), given[0])
    assert "`sparkfleet lock vllm-9 --source vllm=WHEEL`. You have to give: vllm: yours." in str(error.value)


def test_where_nobody_has_measured_it_a_release_takes_what_its_wheels_come_to() -> None:
    assert plan._size(engine(), lock.render(engine(), CLOSURE)) == 3 * 30
    assert plan._size(engine(unpacked=8.3), "") == 8_300_000_000


def test_the_driver_is_the_newest_that_anyone_asks_for() -> None:
    assert plan._driver_minimum([]) == ("580.142", "the policy")
    assert plan._driver_minimum([engine(driver_minimum="580.65.06"), engine()])[0] == "580.142"
    assert plan._driver_minimum([engine(driver_minimum="600.9"), engine(driver_minimum="600.10")])[0] == "600.10"


def test_uvs_words_are_told_without_addresses(given: tuple[Engine, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    done = subprocess.CompletedProcess([], 1, "", "error: no x at https://u:secret@host/simple\n  hint: y")
    monkeypatch.setattr(uv, "find_uv", lambda: "uv")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    with pytest.raises(UserError) as error:
        uv.resolve(given[0], {"vllm": str(given[1])}, {}, ())
    assert str(error.value) == "engine vllm-9: uv finds no closure of its pins: error: no x at (address) hint: y"
