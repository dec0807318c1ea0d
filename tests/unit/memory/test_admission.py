"""The arithmetic of memory: no set of recipes that may run together is larger than the machine."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkfleet.errors import UserError
from sparkfleet.memory.admission import CONTEXT_MARGIN, Admission, Need, admit, utilization

SPARK = 121.7
SIZES = st.floats(0, 60, allow_nan=False)
NEEDS = st.builds(Need, st.just(""), SIZES, SIZES, SIZES, st.floats(0, 10), st.booleans())


def named(needs: list[Need]) -> list[Need]:
    return [
        Need(f"r{n}", one.weights, one.kv, one.overhead, one.start_spike, one.gpu)
        for n, one in enumerate(needs)
        if one.starting <= SPARK - 8
    ]


MANY = st.lists(NEEDS, max_size=6).map(named)


def may_run_together(names: tuple[str, ...], admission: Admission) -> bool:
    return not any(other in admission.conflicts[one] for one, other in combinations(names, 2))


@given(MANY)
def test_whatever_may_run_together_fits(needs: list[Need]) -> None:
    admission = admit(needs, SPARK, 8.0)
    sizes = {one.recipe: one.starting for one in needs}
    for count in range(1, len(needs) + 1):
        for names in combinations(sizes, count):
            if may_run_together(names, admission):
                assert sum(sizes[name] for name in names) <= SPARK - 8.0 + 1e-9
                assert sum(sizes[name] for name in names) <= admission.largest + 1e-9


@given(MANY)
def test_what_fits_all_together_is_left_together(needs: list[Need]) -> None:
    admission = admit(needs, SPARK, 8.0)
    if sum(one.starting for one in needs) <= SPARK - 8.0:
        assert not any(admission.conflicts.values()) and not admission.notes
        assert admission.running == tuple(one.recipe for one in needs)


@given(MANY)
def test_conflicts_are_mutual_and_the_first_named_runs(needs: list[Need]) -> None:
    admission = admit(needs, SPARK, 8.0)
    for one, others in admission.conflicts.items():
        assert one not in others
        assert all(one in admission.conflicts[other] for other in others)
    assert may_run_together(admission.running, admission)
    if needs:
        assert admission.running[0] == needs[0].recipe
    for one in needs:  # and whoever does not run is kept from it by somebody who does
        assert one.recipe in admission.running or set(admission.conflicts[one.recipe]) & set(admission.running)


@given(NEEDS.filter(lambda one: one.gpu and one.starting <= SPARK - 8.0), st.floats(100, 130))
def test_the_utilisation_never_asks_for_more_than_the_sum_or_than_there_is(need: Need, total: float) -> None:
    share = utilization(need, total)
    assert 0 < share < 1
    assert share == round(share, 3)
    assert share * total <= max(need.serving, total / 1000) + 1e-6
    assert share * total <= total - CONTEXT_MARGIN
    assert need.serving - share * total <= total / 1000 or need.serving > total - CONTEXT_MARGIN


def test_two_that_do_not_fit_say_why() -> None:
    big = [Need("gpt-oss-120b", 60.8, 2.3, 6.0, 4.0), Need("qwen3.5-35b", 65.0, 2.6, 6.0, 4.0)]
    admission = admit(big, SPARK, 8.0)
    assert admission.conflicts == {"gpt-oss-120b": ("qwen3.5-35b",), "qwen3.5-35b": ("gpt-oss-120b",)}
    assert admission.running == ("gpt-oss-120b",)
    assert admission.notes == (
        "gpt-oss-120b and qwen3.5-35b exclude each other: gpt-oss-120b 73.1 + qwen3.5-35b 77.6 + operating system 8.0 "
        "= 158.7 GiB, the machine has 121.7 GiB",
    )
    assert round(admission.largest, 1) == 77.6


def test_three_of_which_any_two_fit() -> None:
    needs = [Need(name, 30.0, 0.0, 6.0, 4.0) for name in "abc"]
    admission = admit(needs, SPARK, 8.0)
    assert admission.conflicts == {"a": ("b",), "b": ("a",), "c": ()}
    assert admission.running == ("a", "c")
    assert admission.largest == 80.0


def test_what_does_not_fit_alone_is_refused_with_the_arithmetic() -> None:
    with pytest.raises(UserError) as error:
        admit([Need("huge", 110.0, 2.0, 6.0, 0.0)], SPARK, 8.0)
    assert (
        "recipe huge does not fit: weights 110.0 + KV 2.0 + overhead 6.0 + start 3.0 = 121.0 GiB, and 8.0 GiB stay"
        in str(error.value)
    )


def test_without_a_gpu_there_is_no_context() -> None:
    assert Need("r", 1.0, 0.0, 0.0, 0.5, gpu=False).starting == 1.5
    assert Need("r", 1.0, 0.0, 0.0, 0.5).starting == 4.0
