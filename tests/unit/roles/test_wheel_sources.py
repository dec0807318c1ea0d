"""Who hands out wheels is started once a run, on the way that a host is reached by, and a failure is everybody's."""

import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from pyinfra.connectors.local import LocalConnector

from roles._lib import wheel_sources
from roles._lib.wheel_sources import _ends, _giver, _once, outside
from sparkfleet.errors import UserError
from tests.unit.builders import plan


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheel_sources, "_made", {})


def test_what_is_made_once_serves_all() -> None:
    made = iter("ab")
    assert [_once("key", lambda: next(made)) for _ in range(3)] == ["a", "a", "a"]
    assert _once("another", lambda: next(made)) == "b"


def test_a_failure_is_told_to_all_and_not_tried_again() -> None:
    tried = []

    def fail() -> str:
        tried.append(1)
        raise UserError("no index")

    for _ in range(3):
        with pytest.raises(UserError, match="no index"):
            _once("key", fail)
    assert len(tried) == 1


@pytest.fixture
def connection() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
        yield ours
        ours.close()
        theirs.close()


def ssh(way: object) -> Any:
    transport = SimpleNamespace(sock=way)
    return SimpleNamespace(
        name="spark-1", connector=SimpleNamespace(client=SimpleNamespace(get_transport=lambda: transport))
    )


def test_the_addresses_are_those_of_the_connection(connection: socket.socket) -> None:
    assert _ends(ssh(connection)) == ("127.0.0.1", "127.0.0.1")


def test_this_machine_itself_is_reached_on_loopback() -> None:
    assert _ends(SimpleNamespace(connector=LocalConnector.__new__(LocalConnector))) == ("127.0.0.1",) * 2  # type: ignore[arg-type]


@pytest.mark.parametrize("way", [None, object()])
def test_a_host_behind_another_machine_is_told_the_remedy(way: object) -> None:
    with pytest.raises(UserError, match=r"spark-1 is reached through another machine.*`wheelhouse`"):
        _ends(ssh(way))


@pytest.mark.parametrize(
    ("giver", "reason"),
    [
        (None, "spark-2, which was not reached"),
        (SimpleNamespace(blocked="", failed="account"), "spark-2, which failed at account"),
        (
            SimpleNamespace(blocked="driver: too old.\nmore", failed=""),
            r"spark-2, which is blocked: driver: too old\. Mend",
        ),
    ],
)
def test_a_spark_that_cannot_give_is_named_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, giver: object, reason: str
) -> None:
    monkeypatch.setattr(wheel_sources, "all_runs", lambda: {"spark-2": giver} if giver else {})
    with pytest.raises(UserError, match=reason):
        _giver("spark-2", "model one")


def test_a_giver_outside_the_run_is_seen(lock: str) -> None:
    hosts = [SimpleNamespace(name=name) for name in ("spark-7d19", "spark-2")]
    state = SimpleNamespace(inventory=hosts, is_host_in_limit=lambda one: one.name == "spark-7d19")
    host: Any = SimpleNamespace(name="spark-7d19", state=state)
    assert outside(host, plan(lock, wheelhouse_from="spark-2")) == ["spark-2"]
    assert outside(host, plan(lock, wheelhouse_from="spark-7d19")) == []
    assert outside(host, plan(lock, wheelhouse=None)) == []
