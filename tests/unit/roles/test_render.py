"""What lands on a host: readable, quoted as systemd reads it, the same for the same plan."""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from roles._lib.render import environment_value, systemd_word, units
from sparkfleet.agent.services import guard
from sparkfleet.agent.services.units import DIGEST_VARIABLE, MARK
from sparkfleet.agent.shapes import Unit
from sparkfleet.catalog import engines, recipes
from tests.unit.builders import lock_of, plan

TEXT = st.text(st.characters(blacklist_characters="\n\r\0", blacklist_categories=["Cs"]))


def test_the_files_of_a_unit(lock: str, snapshot: SnapshotAssertion) -> None:
    (unit,) = units(plan(lock))
    # What the guard looks at follows the catalog; it is read back below.
    assert {file.path: file.content for file in unit.files if file.starts} == snapshot


def test_every_file_carries_our_mark_and_the_environment_is_private(lock: str) -> None:
    (unit,) = units(plan(lock))
    assert all(file.content.startswith(MARK) for file in unit.files)
    assert {file.path: file.mode for file in unit.files}["/etc/sparkfleet/tiny-llama.env"] == 0o600


def test_the_digest_is_in_the_environment_and_follows_everything(lock: str) -> None:
    (one,), (other,) = units(plan(lock)), units(plan(lock, python="3.11"))
    assert f"{DIGEST_VARIABLE}={one.digest}\n" in one.files[1].content
    assert one.digest != other.digest
    assert one == units(plan(lock))[0]


@given(st.text(st.characters(blacklist_characters="\n\r\0$`", blacklist_categories=["Cs"])))
def test_an_environment_value_is_read_back(text: str) -> None:
    # but for variables, systemd reads these as a shell does: systemd.exec(5), EnvironmentFile=
    assert shlex.split(environment_value(text)) == [text]


@pytest.mark.parametrize("text", ["$HOME", "`id`", "a$"])
def test_an_environment_value_expands_nothing(text: str) -> None:
    assert environment_value(text) == '"' + text.replace("$", "\\$").replace("`", "\\`") + '"'


@given(TEXT)
def test_a_word_stays_one_word_and_expands_nothing(text: str) -> None:
    word = systemd_word(text)
    quoted = word.startswith('"')
    assert quoted or not set(word) & set(" \t%$\\'\";")
    assert word.count("%") == 2 * text.count("%") and word.count("$") == 2 * text.count("$")


@pytest.mark.parametrize("text", ["a\nExecStart=/bin/evil", "a\rb", "a\0b"])
def test_a_line_break_is_refused(text: str) -> None:
    for quote in (systemd_word, environment_value):
        with pytest.raises(ValueError, match="line break"):
            quote(text)


def test_what_the_guard_looks_at_is_read_back_by_it(lock: str, tmp_path: Path) -> None:
    made = plan(lock)
    (unit,) = units(made)
    (file,) = [one for one in unit.files if one.path.endswith(".guard")]
    path = tmp_path / "x.guard"
    path.write_text(file.content)
    wanted = guard.read(path)
    assert (wanted.recipe, wanted.port, wanted.release) == ("tiny-llama", 8000, made.releases[0].path)
    assert wanted.memory == round(made.recipes[0].need.starting * 1024**3)
    assert len(wanted.weights.files) == 5
    assert f"guard {file.path}" in unit.files[0].content


def with_key(lock: str, tmp_path: Path, key: str) -> Unit:
    path = tmp_path / "key"
    path.write_text(key)
    return units(plan(lock, api_key_file=str(path)))[0]


def test_a_key_is_in_its_own_file_for_root_alone_and_nowhere_else(lock: str, tmp_path: Path) -> None:
    unit = with_key(lock, tmp_path, "sesame-open-yourself")
    holders = [file for file in unit.files if "sesame" in file.content]
    assert [(file.path, file.mode) for file in holders] == [("/etc/sparkfleet/tiny-llama.secrets", 0o600)]
    assert holders[0].content.startswith(MARK)
    assert "EnvironmentFile=/etc/sparkfleet/tiny-llama.secrets\n" in unit.files[0].content


def test_another_key_is_another_digest_and_no_digest_gives_it_away(lock: str, tmp_path: Path) -> None:
    digests = {with_key(lock, tmp_path, key).digest for key in ("a" * 16, "b" * 16)} | {units(plan(lock))[0].digest}
    assert len(digests) == 3


def test_statistics_are_off_unless_asked_for(lock: str) -> None:
    assert "VLLM_NO_USAGE_STATS=1\n" in units(plan(lock))[0].files[1].content
    assert "VLLM_NO_USAGE_STATS" not in units(plan(lock, usage_statistics=True))[0].files[1].content


def test_two_that_exclude_each_other() -> None:
    first, second = units(plan(None, recipes=["gpt-oss-120b", "qwen3.5-35b-fp8"]))
    assert "Conflicts=vllm-qwen3.5-35b-fp8.service\n" in first.files[0].content
    assert "After=vllm-qwen3.5" not in first.files[0].content, "one order is enough, two would be a cycle"
    assert "Conflicts=vllm-gpt-oss-120b.service\nAfter=vllm-gpt-oss-120b.service\n" in second.files[0].content
    assert (first.standby, second.standby) == (False, True)


def test_a_growing_delay_where_systemd_knows_it(lock: str) -> None:
    assert "RestartMaxDelaySec=" in units(plan(lock, systemd=255))[0].files[0].content
    assert "RestartMaxDelaySec=" not in units(plan(lock, systemd=253))[0].files[0].content


def served_by(name: str, engine: str, lock: str) -> dict[str, object]:
    found = engines.engine(engine)
    return {
        "recipes": [name],
        "engine": engine,
        "lock": lock_of(engine, lock),
        "python": found.python[-1],
    }


PAIRS = [
    (path.stem, engine)
    for path in sorted(recipes.RECIPES.glob("*.yaml"))
    if isinstance(found := recipes.entry(path), recipes.Recipe)
    for engine in found.engine_names
]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the user and the programs that units name: systemd looks for them."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd here")
    return tmp_path_factory.mktemp("units")


def local_systemd() -> int:
    said = subprocess.run(("systemd-analyze", "--version"), capture_output=True, text=True, check=True).stdout
    found = re.match(r"systemd (\d+)", said)
    assert found
    return int(found[1])


@pytest.mark.parametrize(("name", "engine"), PAIRS)
def test_systemd_finds_nothing_to_say_of_any_unit(name: str, engine: str, lock: str, here: Path) -> None:
    (unit,) = units(plan(**{**served_by(name, engine, lock), "systemd": local_systemd()}))  # type: ignore[arg-type]
    path = here / unit.name
    path.write_text(unit.files[0].content)
    said = subprocess.run(
        ("systemd-analyze", "verify", "--man=no", str(path)), capture_output=True, text=True, check=False
    )
    assert (said.returncode, said.stdout + said.stderr) == (0, "")


def test_the_sandbox_leaves_little_open(here: Path) -> None:
    (unit,) = units(plan(None, recipes=["gpt-oss-120b"], systemd=local_systemd()))
    path = here / unit.name
    path.write_text(unit.files[0].content)
    said = subprocess.run(
        ("systemd-analyze", "security", "--offline=true", "--json=short", "--threshold=20", str(path)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0, [row for row in json.loads(said.stdout) if row["exposure"]]
