"""Figures from the times of single streams."""

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkfleet import bench
from sparkfleet.agent.bench.shapes import OWN, VLLM, Load, Stream


def load(generator: str, clients: int, rate: float, count: int = 4) -> Load:
    streams = (Stream(0.1, 199 / rate, 200),) * count
    return Load(generator, clients, count / clients * (0.1 + 199 / rate), streams)


def test_the_first_token_does_not_count_for_the_rate_of_a_stream() -> None:
    found = bench.point(load(VLLM, 1, 50))
    assert found.each == pytest.approx(50)
    assert found.total == pytest.approx(200 / (0.1 + 199 / 50))
    assert (found.first, found.tokens, found.streams) == (0.1, 800, 4)


def test_a_stream_that_came_in_one_piece_says_nothing_of_its_rate() -> None:
    whole = load(VLLM, 1, 50)
    held = Stream(4.0, 0.001, 200)  # its client was not run until the end
    found = bench.point(Load(VLLM, 1, whole.seconds, (*whole.streams[:3], held)))
    assert (found.each, found.each_slow) == (pytest.approx(50), pytest.approx(50))
    assert (found.first, found.held_up, found.streams, found.tokens) == (0.1, 1, 4, 800)
    assert bench.point(whole).held_up == 0


def test_a_load_without_streams_is_zero() -> None:
    found = bench.point(Load(VLLM, 1, 0.0, (), failed=4))
    assert (found.total, found.each, found.each_slow, found.first, found.failed) == (0, 0, 0, 0, 4)


def test_the_curve_is_vllms_where_it_measured() -> None:
    loads = (load(OWN, 4, 30), load(VLLM, 1, 50), load(OWN, 1, 51))
    assert [(one.concurrency, one.generator) for one in bench.curve(loads)] == [(1, VLLM), (4, OWN)]


def test_generators_agree_within_a_tenth() -> None:
    near, far = (load(VLLM, 1, 50), load(OWN, 1, 52)), (load(VLLM, 1, 50), load(OWN, 1, 60))
    assert bench.agreement(near)[1] == pytest.approx((1.04, 1.04), abs=0.01)
    assert not bench.disagrees(near)
    assert bench.disagrees(far)
    assert bench.agreement((load(OWN, 1, 52),)) == {}


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50))
def test_percentiles_are_within_and_in_order(values: list[float]) -> None:
    low, middle, high = (bench.percentile(values, share) for share in (0.05, 0.5, 0.95))
    assert min(values) <= low <= middle <= high <= max(values)
    assert middle == pytest.approx(statistics.median(values))
