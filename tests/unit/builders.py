"""Plain values for tests: a healthy Spark, a plan for it, and what a converged one looks like."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from roles._lib import render
from sparkfleet.agent.facts.shapes import (
    Disk,
    Driver,
    Fabric,
    Gpu,
    Kernel,
    Machine,
    Memory,
    Processes,
    Release,
    System,
    Toolchain,
)
from sparkfleet.agent.shapes import (
    SCHEMA,
    AccountState,
    BadDriver,
    Observed,
    PathState,
    Receipt,
    ReleaseState,
    Requirements,
    UnitState,
    Verified,
    WeightsState,
)
from sparkfleet.catalog.engines import engine
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
    "wheelhouse_from": None,
    "sources": {},
    "lock": None,
    "models": "/srv/sparkfleet/models",
    "vocabularies": None,
    "models_from": None,
    "hub": None,
    "hub_token": None,
    "memory_total": 121.7,
    "os_reserve": 8.0,
    "report": None,
    "rollback_to": None,
    "keep_releases": 1,
    "uninstall_keeps": ["weights", "logs"],
    "bench_concurrency": [1, 2, 4, 8, 16],
    "deep": False,
    "api_key_file": None,
    "usage_statistics": False,
    "systemd": 255,
    "clock_skew": 60.0,
    "driver_policy": "check",
    "driver_reboot": False,
    "ssh_hostname": "192.0.2.1",
    "_sudo": True,
}


def machine(**changes: Any) -> Machine:
    """A healthy DGX Spark: NVIDIA board, OTA of April 2026. ``changes`` may name a room's field: ``gpu__driver``."""
    boots = "6.17.0-1014-nvidia"
    spark = Machine(
        lab=None,
        gpu=Gpu("ok", "NVIDIA GB10", "12.1", "580.142", cuda="13.0", temperature=41, utilization=0, clock=208),
        driver=Driver("580.142", "same", "580-open", "580.142", (), 0, ()),
        kernel=Kernel(boots, True, boots, True, None),
        memory=Memory(127_600_812 * 1024, 110 * GIB, GIB, GIB, 16 * GIB, 16 * GIB),
        disks=(Disk("/opt/sparkfleet/releases", 1, 3000 * GIB, 3700 * GIB, False, 240_000_000),),
        toolchain=Toolchain("/usr/bin/gcc", True, "13.0.88", "/usr/bin/ninja", "13.0", True),
        fabric=Fabric((), 0),
        release=Release(
            "DGX Spark", "7.5.0", "7.2.3", "DGX Server for KVM", "1.91.51", "Ubuntu 24.04.3 LTS", "ubuntu", "24.04"
        ),
        system=System(
            hostname="spark-7d19",
            architecture="aarch64",
            boot_id="b0",
            vendor="NVIDIA",
            product="NVIDIA_DGX_Spark",
            board="NVIDIA",
            bios="5.36_0ACUM018",
            machine_id="m0",
            host_key="k0",
            systemd=255,
            remove_ipc=True,
            pythons={"3.12": "/usr/bin/python3.12"},
            own_address=None,
            root_caches=(),
            reboot_required=False,
            reboot_packages=(),
            clock_skew=0.2,
        ),
        processes=Processes((), (), None, (), ()),
    )
    for name, value in changes.items():
        room, _, field = name.partition("__")
        spark = replace(spark, **{room: replace(getattr(spark, room), **{field: value}) if field else value})
    return spark


def requirements(**changes: Any) -> Requirements:
    needs = Requirements(
        compute_capability="12.1",
        architecture="aarch64",
        driver_minimum="580.142",
        driver_minimum_of="the policy",
        driver_newest_known="590.48.01",
        driver_command="sudo apt-get install x",
        drivers_bad=(BadDriver("580.126.09", "it is bad"),),
        compiles=True,
        python="3.12",
        systemd_minimum=252,
        memory=20 * GIB,
        disk=(),
        clock_skew=60.0,
    )
    return replace(needs, **changes)


def plan(lock: str | None, **data: Any) -> HostPlan:
    return plan_host("spark-7d19", {**DATA, "lock": lock, **data})


def lock_of(name: str, lock: str) -> str | None:
    """The lock to plan an engine with: None for its own; without one, a file like ``lock`` that pins its vLLM."""
    found = engine(name)
    if found.lock_is_completed_by_wheelhouse:
        return lock
    if found.lock.exists():
        return None
    path = Path(lock).with_name(f"{name}.lock")
    path.write_text(f"vllm=={found.pins['vllm']} --hash=sha256:{'a' * 64}\n", encoding="utf-8")
    return str(path)


def wanted(lock: str | None, **data: Any) -> Desired:
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
            Verified(one.recipe, "i1", True, "", one.prompts[0].ask, "204", 10.0, 110.0) for one in desired.expectations
        ),
    )
