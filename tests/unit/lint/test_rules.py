"""Every rule: a recipe that trips exactly it, and a near miss that trips nothing."""

import pytest

from sparkfleet.lint.registry import RULES

from .conftest import Check
from .table import ROWS, Row

#: rules about more than one file, or about files of another kind; their tests are in test_check.py
ELSEWHERE = {"port-twice", "known-bad"}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.rule)
def test_a_recipe_that_trips_exactly_this_rule(row: Row, check: Check) -> None:
    found = check(row.trips, row.engine, row.only)
    assert {one.rule for one in found} == {row.rule}
    assert row.said.lower() in " ".join(f"{one.what} {one.remedy}" for one in found).lower()
    assert all(one.file.endswith("it.yaml") and one.line and one.why and one.remedy for one in found)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.rule)
def test_a_near_miss_trips_nothing(row: Row, check: Check) -> None:
    assert [one for one in check(row.near, row.near_engine or row.engine) if not one.waived] == []


def test_every_rule_is_in_the_table() -> None:
    assert {row.rule for row in ROWS} | ELSEWHERE == set(RULES)
