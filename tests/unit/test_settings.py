"""Settings are refused with host, key, found and allowed before any host is touched."""

from typing import Any

import pytest

from sparkfleet.errors import UserError
from sparkfleet.settings import settings
from tests.unit.builders import DATA


def refused(**data: Any) -> str:
    with pytest.raises(UserError) as error:
        settings("spark-1", {**DATA, **data})
    return str(error.value)


def test_the_defaults_with_connection_data_are_good() -> None:
    assert settings("spark-1", DATA).recipes == ["tiny-llama"]


def test_missing_group_data_says_where_to_run() -> None:
    with pytest.raises(UserError, match=r"spark-1: group_data/all.py was not read.*directory that holds deploy.py"):
        settings("spark-1", {"ssh_hostname": "192.0.2.1"})


def test_recipes_must_be_said_because_none_removes_what_serves() -> None:
    assert refused(recipes=None).startswith("spark-1: recipes: not said; wanted: a list")


def test_a_misspelt_key_names_the_near_one() -> None:
    message = refused(recipe=["tiny-llama"])
    assert message == "spark-1: recipe: unknown setting; did you mean 'recipes'?"


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("python", 3.12, "quoted"),  # what `--data python=3.12` gives
        ("python", "312", "minor version"),
        ("recipes", "tiny-llama", "list of names of recipes"),
        ("wheelhouse", "srv/wheels", "absolute path of a directory"),
        ("os_reserve", -1.0, "GiB"),
        ("vocabularies", 5, "file or directory on the control machine"),
        ("clock_skew", 0.0, "seconds"),
    ],
)
def test_a_wrong_value_names_host_key_value_and_what_is_allowed(key: str, value: object, allowed: str) -> None:
    message = refused(**{key: value})
    assert message.startswith(f"spark-1: {key}: ")
    assert repr(value) in message
    assert allowed in message


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"port": 80}, "recipe_overrides.tiny-llama.port: Input should be greater than or equal to 1024; found 80"),
        ({"port": "8001"}, "recipe_overrides.tiny-llama.port: Input should be a valid integer; found '8001'"),
        (
            {"ports": 8001},
            "recipe_overrides.tiny-llama.ports: not a key that a host may change in a recipe; did you me",
        ),
        (
            {"memory": {"wheights": 1.0}},
            "memory.wheights: not a key that a host may change in a recipe; did you mean 'weights'?",
        ),
        ({"flags": {"max-model-len": 1}}, "not a flag for a recipe: say `context`"),
        ({"flags": {"api-key": "x"}}, "not a flag for a recipe: a secret has no place in a recipe"),
        ({"environment": {"A": "x\ny"}}, "recipe_overrides.tiny-llama.environment.A"),
    ],
)
def test_a_change_to_a_recipe_is_checked_as_the_recipe_is(changes: dict[str, object], said: str) -> None:
    assert said in refused(recipe_overrides={"tiny-llama": changes})


def test_every_finding_is_named_at_once() -> None:
    assert len(refused(python=3, wheelhouse="x").splitlines()) == 2


@pytest.mark.parametrize(
    ("wheelhouse", "said", "meant"),
    [
        (None, None, "index"),
        ("/srv/wheels", None, "host"),
        (None, "index", "index"),
        ("/srv/wheels", "index", "index"),
        ("/srv/wheels", "control", "control"),
        ("/srv/wheels", "spark-2", "spark-2"),
    ],
)
def test_a_directory_alone_means_that_nothing_is_fetched(wheelhouse: str | None, said: str | None, meant: str) -> None:
    assert settings("spark-1", {**DATA, "wheelhouse": wheelhouse, "wheelhouse_from": said}).wheels_from == meant


@pytest.mark.parametrize("start", ["control", "host", "spark-2"])
def test_whose_wheelhouse_it_is_without_a_directory_is_refused(start: str) -> None:
    message = refused(wheelhouse=None, wheelhouse_from=start)
    assert message == f"spark-1: wheelhouse_from is {start!r}, and `wheelhouse` does not say which directory"


@pytest.mark.parametrize("sources", ["x://ann:s3cret@host", {"torch": ["x://ann:s3cret@host"]}, ["s3cret"]])
def test_an_address_that_may_hold_a_password_is_not_shown(sources: object) -> None:
    message = refused(sources=sources)
    assert message.startswith("spark-1: sources") and "wanted: a dictionary" in message
    assert "s3cret" not in message


def test_settings_do_not_show_passwords() -> None:
    chosen = settings("spark-1", {**DATA, "sources": {"torch": "x://ann:s3cret@host"}})
    assert chosen.sources["torch"].get_secret_value() == "x://ann:s3cret@host"
    assert "s3cret" not in f"{chosen!r} {chosen} {chosen.model_dump_json()}"


@pytest.mark.parametrize(
    "data",
    [
        {"hub": "x://ann:s3cret@host/x"},
        {"hub": ["s3cret@host"]},
        {"hub_token": "hf_s3cret" + "a" * 30},
        {"api_key_file": "s3cret" + "0" * 40},
        {"api_key_file": ["s3cret"]},
        {"recipe_overrides": {"tiny-llama": {"environment": [{"HF_TOKEN": "s3cret"}]}}},
        {"recipe_overrides": {"tiny-llama": {"environment": {"HF_TOKEN": ["s3cret"]}}}},
        {"recipe_overrides": {"tiny-llama": [{"a": {"api_key": "s3cret"}}]}},
    ],
)
def test_a_secret_in_the_wrong_place_is_refused_and_not_shown(data: dict[str, object]) -> None:
    assert "s3cret" not in refused(**data)


@pytest.mark.parametrize("key", ["models", "wheelhouse", "lock", "recipe_directory", "api_key_file", "report"])
@pytest.mark.parametrize("path", ["/a\0b", "/a\nb"])
def test_a_path_with_control_characters_is_refused(key: str, path: str) -> None:
    assert f"spark-1: {key}: expected a path without line breaks" in refused(**{key: path})
