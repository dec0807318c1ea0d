"""apt is read right, and a driver from elsewhere, or one without a module, is refused before it is installed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkfleet.agent.checks.driver_install import (
    Candidate,
    Planned,
    check_candidate,
    check_plan,
    driver_of,
    parse_candidates,
    parse_labels,
    parse_plan,
    upstream,
)
from sparkfleet.agent.errors import HostError
from sparkfleet.agent.shapes import DriverOrder

SPARK, CUDA = "NVIDIA Spark Updates Repository", "NVIDIA CUDA"
ORDER = DriverOrder(("nvidia-driver-580-open",), SPARK, "580.142", ("580.150",), "/none")
VERSION = "580.159.03-0ubuntu0.24.04.1"

SOURCES = f"""\
Package files:
 100 /var/lib/dpkg/status
     release a=now
 700 file:/srv/spark ./ Packages
     release o=NVIDIA,a=noble,n=noble,l={SPARK},c=
 500 file:/srv/cuda ./ Packages
     release o=NVIDIA,l={CUDA},c=
     origin
Pinned packages:
     nvidia-driver-580-open -> 580.142 with priority -1
"""

POLICY = f"""\
nvidia-driver-580-open:
  Installed: 580.126.09-0ubuntu0.24.04.1
  Candidate: {VERSION}
  Version table:
     610.1-0ubuntu1 -1
         -1 file:/srv/cuda ./ Packages
     {VERSION} 700
        700 file:/srv/spark ./ Packages
 *** 580.126.09-0ubuntu0.24.04.1 100
        100 /var/lib/dpkg/status
linux-modules-nvidia-580-open-nvidia-hwe-24.04:
  Installed: (none)
  Candidate: (none)
  Version table:
"""

PLAN = f"""\
Reading package lists...
The following NEW packages will be installed:
  linux-modules-nvidia-580-open-6.17.0-1021-nvidia
Inst nvidia-driver-580-open [580.126.09-0ubuntu0.24.04.1] ({VERSION} {SPARK}:24.04/noble [arm64])
Inst linux-image-6.17.0-1021-nvidia (6.17.0-1021.21 {SPARK}:24.04/noble [arm64])
Inst linux-modules-nvidia-580-open-6.17.0-1021-nvidia (6.17.0-1021.21 {SPARK}:24.04/noble [arm64])
Conf nvidia-driver-580-open ({VERSION} {SPARK}:24.04/noble [arm64])
"""


def never(boots: str, driver: str) -> bool:
    return False


def test_apt_is_read() -> None:
    labels = parse_labels(SOURCES)
    assert labels["file:/srv/spark ./ Packages"] == SPARK
    assert labels["file:/srv/cuda ./ Packages"] == CUDA
    assert parse_candidates(POLICY) == {
        "nvidia-driver-580-open": Candidate(VERSION, ((700, "file:/srv/spark ./ Packages"),))
    }
    plan = parse_plan(PLAN)
    assert plan.installs["nvidia-driver-580-open"] == VERSION
    assert plan.installs["linux-image-6.17.0-1021-nvidia"] == "6.17.0-1021.21"
    assert plan.removes == ()
    assert parse_plan("Remv cuda-drivers [610]\n").removes == ("cuda-drivers",)


def test_versions() -> None:
    assert upstream(VERSION) == "580.159.03"
    assert upstream("1:580.142-1") == "580.142"
    assert driver_of({"nvidia-driver-580-open": VERSION, "linux-modules-nvidia-580-open-x": "6.17.0-1"}) == "580.159.03"


def candidate(version: str = VERSION, *sources: tuple[int, str]) -> Candidate:
    return Candidate(version, sources or ((700, "spark"),))


LABELS = {"spark": SPARK, "cuda": CUDA, "ubuntu": "Ubuntu"}


def test_the_right_repository_is_taken() -> None:
    assert check_candidate("nvidia-driver-580-open", candidate(), LABELS, ORDER) == VERSION
    installed = candidate(VERSION, (100, "/var/lib/dpkg/status"), (700, "spark"), (500, "ubuntu"))
    assert check_candidate("nvidia-driver-580-open", installed, LABELS, ORDER) == VERSION


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (None, "apt knows no package"),
        (candidate(VERSION, (700, "cuda")), "from NVIDIA CUDA; expected the repository labelled"),
        (candidate(VERSION, (700, "spark"), (700, "ubuntu")), "from NVIDIA Spark Updates Repository and Ubuntu"),
        (candidate(VERSION, (500, "spark"), (700, "ubuntu")), "from Ubuntu"),
        (candidate(VERSION, (100, "/var/lib/dpkg/status")), "from nowhere"),
        (candidate(VERSION, (700, "of nobody")), "from a repository without a label;"),
        (candidate("580.126.09-0ubuntu1"), "the Spark repository has 580.126.09; wanted 580.142 or newer"),
        (candidate("580.150-0ubuntu1"), "and not one of 580.150"),
    ],
)
def test_anything_else_is_refused(found: Candidate | None, said: str) -> None:
    with pytest.raises(HostError, match="driver: ") as error:
        check_candidate("nvidia-driver-580-open", found, LABELS, ORDER)
    assert said in str(error.value)


DRIVER = {"nvidia-driver-580-open": VERSION}
MODULES = "linux-modules-nvidia-580-open-6.17.0-1021-nvidia"


def test_a_plan_with_a_module_for_the_next_kernel_is_good() -> None:
    check_plan(parse_plan(PLAN), DRIVER, "6.17.0-1014-nvidia", never)
    check_plan(Planned({MODULES: "1", **DRIVER}, ()), DRIVER, "6.17.0-1021-nvidia", never)
    check_plan(Planned(DRIVER, ()), DRIVER, "6.17.0-1021-nvidia", lambda boots, driver: driver == "580.159.03")


@pytest.mark.parametrize(
    ("plan", "boots", "said"),
    [
        (Planned(DRIVER, ("cuda-drivers",)), "6.17.0-1021-nvidia", "apt would remove cuda-drivers"),
        (Planned(DRIVER, ()), None, "cannot be told which kernel boots next"),
        (Planned(DRIVER, ()), "6.17.0-1014-nvidia", "kernel 6.17.0-1014-nvidia boots next, and nothing brings"),
        (
            Planned({"linux-image-6.17.0-1030-nvidia": "1", MODULES: "1"}, ()),
            "6.17.0-1021-nvidia",
            "6.17.0-1030-nvidia",
        ),
    ],
)
def test_a_plan_that_would_leave_a_spark_without_gpu_is_refused(plan: Planned, boots: str | None, said: str) -> None:
    with pytest.raises(HostError, match="Nothing was installed") as error:
        check_plan(plan, DRIVER, boots, never)
    assert said in str(error.value)


@given(st.text())
def test_noise_is_no_candidate(text: str) -> None:
    parse_labels(text)
    parse_plan(text)
    assert all(one.version for one in parse_candidates(text).values())
