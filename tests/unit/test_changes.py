"""What differs is found exactly, and a host that is as it should be has nothing to do."""

from dataclasses import replace
from typing import Any

import pytest

from sparkfleet.agent.shapes import Observed
from sparkfleet.changes import ROLES, changes, retired
from sparkfleet.desired import Desired
from tests.unit.builders import converged, wanted

UNIT = "vllm-tiny-llama.service"
UNIT_FILE = f"/etc/systemd/system/{UNIT}"
ENVIRONMENT = "/etc/sparkfleet/tiny-llama.env"


@pytest.fixture
def desired(lock: str) -> Desired:
    return wanted(lock)


def things(desired: Desired, seen: Observed) -> list[tuple[str, str, str]]:
    return [(change.role, change.thing, change.action) for change in changes(desired, seen)]


def unit(seen: Observed, **different: Any) -> Observed:
    return replace(seen, units=(replace(seen.units[0], **different),))


def path(seen: Observed, name: str, **different: Any) -> Observed:
    return replace(seen, paths={**seen.paths, name: replace(seen.paths[name], **different)})


def without(seen: Observed, name: str) -> Observed:
    return replace(seen, paths={key: value for key, value in seen.paths.items() if key != name})


ASK = ("verify", "tiny-llama", "ask it")
RESTART = [("service", UNIT, "restart"), ("verify", "tiny-llama", "ask it again after the restart")]


def test_nothing_differs_on_a_converged_host(desired: Desired) -> None:
    assert changes(desired, converged(desired)) == ()


def test_everything_differs_on_a_bare_host_in_the_order_of_the_roles(desired: Desired) -> None:
    seen = converged(desired)
    bare = replace(seen, agent="", receipt=None, account=None, paths={}, releases=(), units=(), verified=())
    bare = replace(bare, weights=(replace(seen.weights[0], problem="config.json is missing"),))
    roles = [role for role, _, _ in things(desired, bare)]
    assert list(dict.fromkeys(roles)) == ["account", "engine", "patches", "weights", "service", "verify"]


def test_a_stopped_unit_is_started_and_asked_and_nothing_else(desired: Desired) -> None:
    seen = unit(converged(desired), active="inactive", pid=0, invocation="", digest="", started=0.0)
    assert things(desired, seen) == [("service", UNIT, "start"), ASK]


def test_what_was_verified_is_not_said_to_be_unverified(desired: Desired) -> None:
    said = [str(one) for one in changes(desired, unit(converged(desired), digest="old"))]
    assert said[-1] == "tiny-llama: verified before; ask it again after the restart"
    said = [str(one) for one in changes(desired, unit(converged(desired), digest="old", invocation="i2"))]
    assert said[-1] == "tiny-llama: not verified since it was started; ask it"
    said = [str(one) for one in changes(desired, replace(converged(desired), units=()))]
    assert said[-1] == "tiny-llama: not running yet; ask it"


def test_a_lost_environment_file_is_written_and_the_process_left_alone(desired: Desired) -> None:
    assert things(desired, without(converged(desired), ENVIRONMENT)) == [("service", ENVIRONMENT, "write")]


def test_an_edited_unit_is_written_and_a_process_started_before_is_left_alone(desired: Desired) -> None:
    seen = path(converged(desired), UNIT_FILE, sha256="0" * 64, mtime=200.0)
    assert things(desired, seen) == [("service", UNIT_FILE, "write")]


def test_an_edited_unit_that_a_process_was_started_from_is_restarted(desired: Desired) -> None:
    seen = path(converged(desired), UNIT_FILE, sha256="0" * 64, mtime=90.0)
    assert things(desired, seen) == [("service", UNIT_FILE, "write"), *RESTART]


def test_a_process_of_other_settings_is_restarted(desired: Desired) -> None:
    assert things(desired, unit(converged(desired), digest="old")) == RESTART


def test_a_release_changed_behind_our_back_is_built_again_and_restarted(desired: Desired) -> None:
    seen = converged(desired)
    seen = replace(seen, releases=(replace(seen.releases[0], sealed=False, problem="torch was changed"),))
    release = f"release {desired.releases[0].name}"
    patches = ("patches", release, "apply its patch set and seal it")
    assert things(desired, seen) == [("engine", release, "build again"), patches, *RESTART]


def test_a_release_built_and_not_sealed_is_only_sealed(desired: Desired) -> None:
    seen = converged(desired)
    seen = replace(seen, releases=(replace(seen.releases[0], sealed=False, waiting=True),))
    assert [role for role, _, _ in things(desired, seen)] == ["patches", "service", "verify"]


def test_a_process_older_than_its_release_is_restarted(desired: Desired) -> None:
    seen = converged(desired)
    assert things(desired, replace(seen, releases=(replace(seen.releases[0], built=101.0),))) == RESTART


def test_a_process_that_the_receipt_calls_suspect_is_restarted(desired: Desired) -> None:
    seen = converged(desired)
    assert seen.receipt
    assert things(desired, replace(seen, receipt=replace(seen.receipt, suspects=("i1",)))) == RESTART


def test_a_group_that_is_lost_is_given_back(desired: Desired) -> None:
    seen = converged(desired)
    assert seen.account
    seen = replace(seen, account=replace(seen.account, missing_groups=("video",)))
    assert things(desired, seen) == [("account", "user sparkfleet", "add")]


def test_a_process_older_than_its_weights_is_restarted(desired: Desired) -> None:
    seen = converged(desired)
    assert things(desired, replace(seen, weights=(replace(seen.weights[0], changed=101.0),))) == RESTART


def test_a_removed_user_is_created_and_nothing_else(desired: Desired) -> None:
    seen = replace(converged(desired), account=None)
    seen = path(seen, "/var/lib/sparkfleet/home", owner="990", group="990")
    assert things(desired, seen) == [("account", "user sparkfleet", "create")]


@pytest.mark.parametrize("different", [{"mode": 0o644}, {"owner": "ann"}])
def test_a_file_with_other_rights_is_set_right(desired: Desired, different: dict[str, Any]) -> None:
    seen = path(converged(desired), ENVIRONMENT, **different)
    assert things(desired, seen) == [("service", ENVIRONMENT, "set right")]


def test_a_failed_verification_is_tried_again(desired: Desired) -> None:
    seen = converged(desired)
    assert things(desired, replace(seen, verified=(replace(seen.verified[0], passed=False),))) == [ASK]


def test_a_unit_restarted_by_somebody_is_asked_again(desired: Desired) -> None:
    assert things(desired, unit(converged(desired), invocation="i2")) == [ASK]


def test_a_recipe_taken_off_is_retired(desired: Desired, lock: str) -> None:
    none = wanted(lock, recipes=[])
    assert retired(none, converged(desired)) == (UNIT,)
    assert ("service", UNIT, "stop and remove") in things(none, converged(desired))


def test_an_old_agent_is_replaced(desired: Desired) -> None:
    assert things(desired, replace(converged(desired), agent="old")) == [
        ("account", "/opt/sparkfleet/agent.pyz", "lay down")
    ]


def test_a_vocabulary_that_is_not_right_is_laid_down_before_the_weights_and_no_process_is_touched(
    desired: Desired,
) -> None:
    seen = replace(converged(desired), vocab="o200k_base.tiktoken is missing")
    assert things(desired, seen) == [("vocab", "/opt/sparkfleet/vocab", "lay down")]
    assert ROLES.index("patches") < ROLES.index("vocab") < ROLES.index("weights")


class TestWheels:
    @pytest.fixture
    def served(self, lock: str) -> Desired:
        return wanted(lock, wheelhouse=None)

    def missing(self, served: Desired, **different: Any) -> Observed:
        return replace(converged(served), releases=(), **different)

    def roles(self, served: Desired, seen: Observed) -> list[str]:
        return [change.role for change in changes(served, seen) if change.role in ("wheels", "engine")]

    def test_a_release_that_is_there_needs_none(self, served: Desired) -> None:
        assert changes(served, converged(served)) == ()

    def test_they_come_before_a_release_is_built(self, served: Desired) -> None:
        assert self.roles(served, self.missing(served)) == ["wheels", "engine"]
        (said,) = (str(one) for one in changes(served, self.missing(served)) if one.role == "wheels")
        assert said.endswith("not all on the host; bring from the package index")

    def test_those_that_are_there_do_not_come_again(self, served: Desired) -> None:
        seen = self.missing(served, wheels=(served.releases[0].name,))
        assert self.roles(served, seen) == ["engine"]

    def test_a_release_that_waits_to_be_sealed_needs_none(self, served: Desired) -> None:
        seen = converged(served)
        seen = replace(seen, releases=(replace(seen.releases[0], sealed=False, waiting=True),))
        assert self.roles(served, seen) == []

    def test_one_that_was_changed_is_built_again_from_those_that_stayed(self, served: Desired) -> None:
        seen = converged(served)
        changed = (replace(seen.releases[0], sealed=False, problem="torch was changed"),)
        assert self.roles(served, replace(seen, releases=changed)) == ["wheels", "engine"]
        assert self.roles(served, replace(seen, releases=changed, wheels=(changed[0].name,))) == ["engine"]

    def test_a_host_with_its_own_wheelhouse_is_brought_none(self, desired: Desired) -> None:
        assert self.roles(desired, self.missing(desired)) == ["engine"]


SECOND = "vllm-tiny-zeros.service"


@pytest.fixture
def crowded(lock: str) -> Desired:
    """Two recipes for a memory that has room for one of them."""
    return wanted(lock, recipes=["tiny-llama", "tiny-zeros"], memory_total=10.5)


def second(seen: Observed, **different: Any) -> Observed:
    return replace(seen, units=(seen.units[0], replace(seen.units[1], **different)))


def test_a_recipe_that_waits_for_room_is_laid_down_and_left_alone(crowded: Desired) -> None:
    seen = converged(crowded)
    waiting = {"active": "inactive", "sub": "dead", "enabled": "disabled", "pid": 0, "digest": ""}
    assert changes(crowded, second(seen, **waiting)) == ()
    assert things(crowded, second(seen, **waiting, load="not-found")) == [("service", SECOND, "lay down")]
    assert things(crowded, second(seen, **{**waiting, "enabled": "enabled"})) == [("service", SECOND, "disable")]


def test_one_that_was_started_in_its_place_gives_way_again(crowded: Desired) -> None:
    seen = unit(converged(crowded), active="inactive", pid=0, digest="")
    seen = replace(seen, units=(*seen.units, replace(converged(crowded).units[1], enabled="disabled")))
    assert things(crowded, seen) == [("service", UNIT, "start"), (*ASK[:2], "ask it again after the start")]


def test_what_a_guard_looks_at_may_change_without_a_restart(desired: Desired) -> None:
    seen = path(converged(desired), "/etc/sparkfleet/tiny-llama.guard", sha256="0" * 64, mtime=1.0)
    assert things(desired, seen) == [("service", "/etc/sparkfleet/tiny-llama.guard", "write")]


def test_a_lost_receipt_is_written_again_and_nothing_is_restarted(desired: Desired) -> None:
    seen = converged(desired)
    assert ("account", "receipt", "write down what is here") in things(desired, replace(seen, receipt=None))
    assert seen.receipt
    forgotten = replace(seen, receipt=replace(seen.receipt, units=()))
    found = things(desired, forgotten)
    assert ("service", UNIT, "write down") in found and (UNIT, "restart") not in [one[1:] for one in found]
