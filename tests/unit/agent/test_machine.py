"""What Sparks print is read; what broken ones print is data too."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkfleet.agent import machine
from sparkfleet.agent.shapes import Gpu

RELEASE = """\
DGX_NAME="DGX Spark"
DGX_PRETTY_NAME="NVIDIA DGX Spark"
DGX_SWBUILD_VERSION="7.2.3"
DGX_PLATFORM="DGX Server for KVM"
DGX_SERIAL_NUMBER="1234567890"

DGX_OTA_VERSION="7.3.1"
DGX_OTA_DATE="Wed Nov 19 05:05:30 PM CET 2025"

DGX_OTA_VERSION="7.5.0"
DGX_OTA_DATE="Wed Aug 19 21:36:16 MSK 2026"
"""

MODULE = """\
NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.142  Release Build  (dvs-builder@U22-I3-H10-02-1)
GCC version:  gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04.1)
"""


def test_a_good_spark() -> None:
    assert machine.parse_gpu(b"NVIDIA GB10, 580.142, 12.1\n", b"", 0) == Gpu("ok", "NVIDIA GB10", "12.1", "580.142")


@pytest.mark.parametrize(
    ("stdout", "stderr", "code", "state"),
    [
        (b"Failed to initialize NVML: Driver/library version mismatch\n", b"", 18, "mismatch"),
        (b"No devices were found\n", b"", 6, "no-devices"),
        (
            b"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure...",
            b"",
            9,
            "no-driver",
        ),
        (b"", b"", 0, "unreadable"),
        (b"\xff\xfe\x00garbage", b"", 0, "unreadable"),
        (b"NVIDIA GB10, 580.142, 12.1\n", b"", 1, "unreadable"),
        (b"NVIDIA GB10, 580.142\n", b"", 0, "unreadable"),
        (b"NVIDIA GB10, [N/A], 12.1\n", b"", 0, "unreadable"),
    ],
)
def test_a_sick_one_says_how(stdout: bytes, stderr: bytes, code: int, state: str) -> None:
    found = machine.parse_gpu(stdout, stderr, code)
    assert found.state == state
    assert found.driver is None
    assert found.detail


@given(st.binary(), st.binary(), st.integers(0, 255))
def test_noise_never_crashes_and_is_never_a_good_gpu(stdout: bytes, stderr: bytes, code: int) -> None:
    found = machine.parse_gpu(stdout, stderr, code)
    assert found.state == "unreadable" or found.driver
    assert found.detail.isascii()


@given(st.integers(0, len(b"NVIDIA GB10, 580.142, 12.1\n")))
def test_a_truncated_answer_is_never_another_driver(cut: int) -> None:
    found = machine.parse_gpu(b"NVIDIA GB10, 580.142, 12.1\n"[:cut], b"", 0)
    assert found.driver in (None, "580.142")


def test_the_last_ota_counts_and_no_serial_number_is_kept() -> None:
    release = machine.dgx_release(RELEASE)
    assert release["DGX_OTA_VERSION"] == "7.5.0"
    assert "1234567890" not in str(release)


@given(st.text())
def test_release_files_of_noise_never_crash(text: str) -> None:
    machine.dgx_release(text)
    machine.os_name(text)
    machine.module_version(text)
    assert all(value >= 0 for value in machine.meminfo(text).values())


def test_memory_in_bytes() -> None:
    assert machine.meminfo("MemTotal:       127600812 kB\nMemFree: x kB\n") == {"MemTotal": 127600812 * 1024}


def test_the_loaded_module() -> None:
    assert machine.module_version(MODULE) == "580.142"
    assert machine.module_version("") is None


def test_room_is_that_of_the_nearest_parent(tmp_path) -> None:  # type: ignore[no-untyped-def]
    there = machine.disk(str(tmp_path))
    not_yet = machine.disk(str(tmp_path / "a" / "b"))
    assert not_yet.total == there.total > 0
