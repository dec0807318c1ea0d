"""A fleet in every state that a host can be in."""

from dataclasses import replace
from typing import Any

import pytest

from sparkfleet.agent.shapes import Finding, Live, Observed
from sparkfleet.status.fleet import View
from tests.unit import builders

UNIT = "vllm-tiny-llama.service"
ENVIRONMENT = "/etc/sparkfleet/tiny-llama.env"

#: When the fleet is looked at; ``builders.converged`` deployed at 10 and verified at 110.
NOW = 10_000.0


class Fleet:
    """Hosts of one plan that are converged but for what a test says."""

    def __init__(self, lock: str) -> None:
        self.lock = lock
        self.plan, self.wanted = builders.plan(lock), builders.wanted(lock)
        seen = builders.converged(self.wanted)
        self.good = replace(
            seen,
            current={unit.name: unit.digest for unit in self.wanted.units},
            live=(Live("tiny-llama", "", "", 3, 12, 0.345),),
        )
        self.count = 0

    def view(self, seen: Observed | None, trouble: str = "") -> View:
        """A host of its own: no two have one machine-id."""
        if seen:
            self.count += 1
            system = replace(seen.machine.system, machine_id=f"m{self.count}", host_key=f"k{self.count}")
            seen = replace(seen, machine=replace(seen.machine, system=system))
        return View(self.plan, self.wanted, seen, trouble)

    def unit(self, **different: Any) -> Observed:
        return replace(self.good, units=(replace(self.good.units[0], **different),))

    def live(self, **different: Any) -> Observed:
        return replace(self.good, live=(replace(self.good.live[0], **different),))

    def path(self, path: str, **different: Any) -> Observed:
        return replace(self.good, paths={**self.good.paths, path: replace(self.good.paths[path], **different)})

    def every_state(self) -> dict[str, View | None]:
        """One host for each."""
        silent = {"running": None, "waiting": None, "kv_use": None}
        stop = Finding("gpu-old", "stop", "driver: expected 580.142 or newer, found 580.126.09", "bring it up to date")
        warning = Finding("swap", "warn", "memory: swap is on", "switch it off")
        failed = replace(self.good.verified[0], passed=False, reason="arithmetic: asked '12*17': it answers '!!!!'")
        seen: dict[str, Observed] = {
            "serving": self.good,
            "warned": replace(self.good, findings=(warning,)),
            "blocked": replace(self.good, findings=(stop,)),
            "hung": self.live(silence="port 8000/v1/models: timed out", **silent),
            "other": self.live(difference="process 77 was not started with the unit's command: found --port=1"),
            "hand": replace(
                self.unit(active="inactive", sub="dead", pid=0, invocation="", digest="", started=0.0),
                live=(Live("tiny-llama", difference="process 9 of session-3.scope listens on port 8000"),),
            ),
            "starting": replace(self.unit(active="activating", sub="start"), live=()),
            "again": replace(self.unit(active="activating", sub="auto-restart", result="exit-code"), live=()),
            "failed": replace(self.unit(active="failed", result="exit-code", started=0.0), live=()),
            "edited": self.path(ENVIRONMENT, sha256="x", mtime=9000.0),
            "unverified": self.unit(invocation="i2"),
            "garbage": replace(self.good, verified=(failed,)),
            "new": replace(self.good, receipt=None, units=(), live=(), verified=(), paths={}, current={}),
        }
        views: dict[str, View | None] = {name: self.view(one) for name, one in seen.items()}
        return {**views, "gone": None, "shut": self.view(None, "sudo does not let ann become root.")}


@pytest.fixture
def fleet(lock: str) -> Fleet:
    return Fleet(lock)
