"""What a host can go back to, and which releases it can do without."""

from dataclasses import replace

import pytest

from sparkfleet.agent.shapes import Observed, ReleaseState, Served
from sparkfleet.errors import UserError
from sparkfleet.going_back import kept, needless, target
from tests.unit.builders import converged, wanted

UNIT = "vllm-a.service"


def served(at: float, digest: str, release: str) -> Served:
    return Served(at, {UNIT: digest}, {UNIT: release}, ())


@pytest.fixture
def seen(lock: str) -> Observed:
    """A host that served from vllm-1, then vllm-2, and has vllm-2 now."""
    host = converged(wanted(lock))
    sets = (served(1, "d1", "vllm-1-aa"), served(2, "d2", "vllm-2-bb"))
    return replace(host, served=sets, current={UNIT: "d2"})


def test_without_a_name_it_is_what_served_before(seen: Observed) -> None:
    assert target(seen, None).at == 1
    # After a change that was never verified, what served last.
    assert target(replace(seen, current={UNIT: "d3"}), None).at == 2


def test_by_name_it_is_the_newest_that_served_from_it(seen: Observed) -> None:
    older = replace(seen, served=(served(0, "d0", "vllm-1-aa"), *seen.served))
    assert target(older, "vllm-1").at == 1


@pytest.mark.parametrize(
    ("to", "said"),
    [
        ("vllm-3", "to go back to there is: vllm-1-aa"),
        ("vllm-2-bb", "nothing of it was ever verified here"),  # it is there now
    ],
)
def test_what_there_is_not_is_told_with_what_there_is(seen: Observed, to: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        target(seen, to)


def test_a_beginning_of_several_names_is_refused(seen: Observed) -> None:
    both = replace(seen, current={UNIT: "d3"})
    with pytest.raises(UserError, match="several releases begin like that: vllm-1-aa, vllm-2-bb"):
        target(both, "vllm-")


def test_nothing_served_nothing_to_go_back_to(seen: Observed) -> None:
    with pytest.raises(UserError, match="nothing to go back to"):
        target(replace(seen, served=seen.served[1:]), None)


def release(name: str, built: float, **other: object) -> ReleaseState:
    return replace(ReleaseState(name, True, "", built), **other)  # type: ignore[arg-type]


def test_garbage_is_neither_used_nor_wanted_nor_last_good_nor_among_the_newest(seen: Observed) -> None:
    releases = (
        release("used", 9, users=(UNIT,)),
        release("vllm-1-aa", 1),  # the last good one
        release("wanted", 2),
        release("older", 3),
        release("newer", 4),
        release("damaged", 8, sealed=False, problem="torch was changed"),
        release("half", 0, sealed=False, waiting=True),
    )
    host = replace(seen, releases=releases)
    assert [one.name for one in needless(host, ["wanted"], 0)] == ["older", "newer", "damaged", "half"]
    assert [one.name for one in needless(host, ["wanted"], 1)] == ["older", "damaged", "half"]
    assert [one.name for one in needless(host, ["wanted", "half"], 2)] == ["damaged"]
    assert kept(host, ["wanted"], 1) == {
        "used": f"in use by {UNIT}",
        "vllm-1-aa": "the last good one, to go back to",
        "wanted": "the inventory wants it",
        "newer": "the newest other",
    }
    assert kept(host, ["wanted"], 2)["older"] == "one of the newest 2 others"
