"""Plain values for tests: a healthy Spark, a plan for it, and what a converged one looks like."""

import hashlib
from dataclasses import replace
from typing import Any

from roles._lib import render
from sparkfleet.agent.shapes import (
    SCHEMA,
    AccountState,
    Disk,
    Gpu,
    Machine,
    Observed,
    PathState,
    Receipt,
    ReleaseState,
    Requirements,
    UnitState,
    Verified,
    WeightsState,
)
from sparkfleet.desired import Desired
from sparkfleet.plan import HostPlan, plan_host

GIB = 1024**3

DATA: dict[str, Any] = {
    "settings_version": 1,
    "recipes": ["tiny-llama"],
    "recipe_directory": None,
    "recipe_overrides": {},
    "engine": None,
    "python": "3.12",
    "wheelhouse": "/srv/sparkfleet/wheelhouse",
    "lock": None,
    "models": "/srv/sparkfleet/models",
    "os_reserve": 8.0,
    "clock_skew": 60.0,
    "ssh_hostname": "192.0.2.1",
    "_sudo": True,
}


def machine(**changes: Any) -> Machine:
    """A healthy DGX Spark: NVIDIA board, OTA of April 2026."""
    spark = Machine(
        hostname="spark-7d19",
        architecture="aarch64",
        kernel="6.17.0-1014-nvidia",
        boot_id="b0",
        lab=None,
        gpu=Gpu("ok", "NVIDIA GB10", "12.1", "580.142"),
        driver_module="580.142",
        dgx="DGX Spark",
        ota="7.5.0",
        platform="DGX Server for KVM",
        os="Ubuntu 24.04.3 LTS",
        systemd=255,
        pythons={"3.12": "/usr/bin/python3.12"},
        memory_total=127_600_812 * 1024,
        memory_available=110 * GIB,
        disks=(Disk("/opt/sparkfleet/releases", 1, 3000 * GIB, 3700 * GIB, False),),
        clock_skew=0.2,
    )
    return replace(spark, **changes)


def requirements(**changes: Any) -> Requirements:
    needs = Requirements("12.1", "aarch64", "580.142", "3.12", 252, 20 * GIB, (), 60.0)
    return replace(needs, **changes)


def plan(lock: str, **data: Any) -> HostPlan:
    return plan_host("spark-7d19", {**DATA, "lock": lock, **data})


def wanted(lock: str, **data: Any) -> Desired:
    return render.desired_of(plan(lock, **data))


def converged(desired: Desired) -> Observed:
    """What a host says on which everything of ``desired`` is true."""
    files = [*desired.account.files, *(file for unit in desired.units for file in unit.files)]
    paths = {
        file.path: PathState("file", "root", "root", file.mode, hashlib.sha256(file.content.encode()).hexdigest(), 50.0)
        for file in files
    }
    for one in desired.account.directories:
        paths[one.path] = PathState("directory", one.owner, one.group, one.mode)
    return Observed(
        schema=SCHEMA,
        agent=desired.agent,
        machine=machine(),
        findings=(),
        receipt=Receipt(SCHEMA, "r1", "ann", 10.0, tuple(unit.name for unit in desired.units)),
        account=AccountState(990, 990, "/var/lib/sparkfleet/home", ()),
        paths=paths,
        releases=tuple(ReleaseState(one.name, True, "", 20.0) for one in desired.releases),
        weights=tuple(WeightsState(one.model, "") for one in desired.weights),
        units=tuple(
            UnitState(one.name, "loaded", "active", "running", "enabled", "success", 77, "i1", 100.0, one.digest, False)
            for one in desired.units
        ),
        verified=tuple(
            Verified(one.recipe, "i1", True, "", one.question, "204", 10.0, 110.0) for one in desired.expectations
        ),
    )
