"""All hosts of a run are planned before any of them is asked."""

from typing import Any

import pytest
from pyinfra.api import Config, Inventory, State
from pyinfra.context import ctx_state

from tests.unit.builders import DATA

with pytest.MonkeyPatch.context() as patch:
    # pyinfra's command line does this to the whole process, which other tests have to live in.
    patch.setattr("gevent.monkey.patch_all", lambda: None)
    from roles._lib import runs
    from roles._lib.inventories import Refused


@pytest.fixture(autouse=True)
def no_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_plans", {})


def plan_all(lock: str, looks_only: bool, limit: tuple[str, ...] = (), **hosts: dict[str, Any]) -> list[str]:
    """The hosts that have a plan."""
    inventory = Inventory(([(name, {**DATA, "lock": lock, **data}) for name, data in hosts.items()], {}))
    state = State(inventory, Config(), initial_limit=[inventory.get_host(name) for name in limit] or None)
    runs._plans.clear()
    with ctx_state.use(state):
        runs._plan_all(looks_only)
    return list(runs._plans)


def test_names_of_one_address_with_different_plans(lock: str) -> None:
    """They are refused where anything may change; a look at them is no harm."""
    one, other = {"ssh_hostname": "192.0.2.11"}, {"ssh_hostname": "192.0.2.11", "recipes": []}
    with pytest.raises(Refused, match=r"^a, b: these names have one address, 192\.0\.2\.11, and different plans"):
        plan_all(lock, False, a=one, b=other)
    assert plan_all(lock, True, a=one, b=other) == ["a", "b"]
    assert plan_all(lock, False, ("b",), a=one, b=other) == ["b"]


def test_names_of_one_address_with_one_plan(lock: str) -> None:
    one = {"ssh_hostname": "192.0.2.11"}
    assert plan_all(lock, False, a=one, b=one, c={"ssh_hostname": "192.0.2.11", "ssh_port": 2222, "recipes": []})
