"""What Sparks print is read; what broken ones print is data too: truncated, reordered, doubled, noise or nothing."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkfleet.agent.facts import disk, driver, fabric, gpu, kernel, memory, processes, source, system, toolchain
from sparkfleet.agent.facts.shapes import Gpu, Memory
from sparkfleet.agent.facts.source import Program, Said

QUERY = b"NVIDIA GB10, 580.142, 12.1, [N/A], 41, 0, 208, 4.12\n"

DGX = """\
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

MEMINFO = """\
MemTotal:       127600812 kB
MemFree:        98000000 kB
MemAvailable:   120000000 kB
CmaTotal:         524288 kB
CmaFree:          400000 kB
SwapTotal:      16777212 kB
SwapFree:       16777212 kB
"""

VERSION = """\
NVIDIA-SMI version  : 580.142
NVML version        : 580.142
DRIVER version      : 580.142
CUDA Version        : 13.0
"""

APPS = "2065247, VLLM::Worker_TP0, 102843\n88, /opt/a, b/python3, [N/A]\n"

DPKG = """\
installed nvidia-driver-580-open 580.142-0ubuntu0.24.04.1
not-installed nvidia-driver-590-open 590.48.01-0ubuntu0.24.04.1
config-files nvidia-driver-570 570.1.2-0ubuntu1
"""

GRUB = """\
set timeout=0
menuentry 'Ubuntu' --class ubuntu $menuentry_id_option 'gnulinux-simple-5c8' {
	linux	/boot/vmlinuz-6.17.0-1021-nvidia root=UUID=5c8 ro
	initrd	/boot/initrd.img-6.17.0-1021-nvidia
}
submenu 'Advanced options for Ubuntu' {
	menuentry 'Ubuntu, with Linux 6.17.0-1014-nvidia' {
	linux	/boot/vmlinuz-6.17.0-1014-nvidia root=UUID=5c8 ro
	}
}
"""

XID = "4,812,99,-;NVRM: Xid (PCI:000f:01:00): 119, pid=1, Timeout after 45s of waiting for RPC response\n"

PTXAS = "--gpu-name <gpu>\n    Allowed values: 'sm_100','sm_120','sm_120a','sm_121','sm_121a'\n"
NVCC = '{"cuda": {"name": "CUDA SDK", "version": "13.0.2"}, "cuda_nvcc": {"name": "CUDA NVCC", "version": "13.0.88"}}'
ADDRESSES = json.dumps(
    [{"ifname": "enp1s0f0np0", "addr_info": [{"family": "inet", "local": "203.0.113.11", "prefixlen": 25}]}]
)
CGROUP = "3:cpu:/system.slice\n1:name=systemd:/system.slice/vllm-a.service\n0::/system.slice/vllm-a.service\n"


def said(stdout: bytes = b"", stderr: bytes = b"", code: int = 0) -> Said:
    return Said("ended", stdout, stderr, code)


#: each parser with an output from a real Spark
PARSERS: dict[str, tuple[Any, str]] = {
    "gpu": (lambda text: gpu.parse_gpu(said(text.encode("utf-8", "surrogatepass"))), QUERY.decode()),
    "cuda": (gpu.parse_cuda, VERSION),
    "apps": (gpu.parse_processes, APPS),
    "module": (driver.parse_module, MODULE),
    "packages": (driver.parse_packages, DPKG),
    "xids": (driver.parse_xids, XID),
    "grub": (lambda text: kernel.boots_next(text, text, text, text.splitlines()), GRUB),
    "memory": (memory.parse, MEMINFO),
    "ptxas": (toolchain.parse_help, PTXAS),
    "ptxas version": (toolchain.parse_release, "Cuda compilation tools, release 13.0, V13.0.88\n"),
    "nvcc": (toolchain.parse_cuda, NVCC),
    "port": (fabric.parse_state, "4: ACTIVE"),
    "number": (fabric.parse_number, "200000"),
    "addresses": (fabric.parse_addresses, ADDRESSES),
    "dgx-release": (system.parse_dgx, DGX),
    "systemd": (system.parse_systemd, "255 (255.4-1ubuntu8.10)\n"),
    "logind": (lambda text: system.parse_remove_ipc([text, text]), "[Login]\nRemoveIPC=no\n"),
    "cgroup": (processes.parse_unit, CGROUP),
}


@st.composite
def mangled(draw: st.DrawFn, text: str) -> str:
    """An output as broken tools and disks give it: lines lost, in another order, doubled, cut off, with noise."""
    lines = text.splitlines(keepends=True)
    picked = draw(st.lists(st.sampled_from([*lines, ""]), max_size=2 * len(lines)))
    whole = "".join(picked)
    cut = whole[: draw(st.integers(0, len(whole)))]
    place = draw(st.integers(0, len(cut)))
    return cut[:place] + draw(st.text(max_size=20)) + cut[place:]


@pytest.mark.parametrize("name", PARSERS)
@given(data=st.data())
def test_no_output_crashes_a_parser(name: str, data: st.DataObject) -> None:
    parse, good = PARSERS[name]
    parse(data.draw(mangled(good) | st.text()))


@pytest.mark.parametrize("name", PARSERS)
def test_nothing_is_unknown_and_never_zero(name: str) -> None:
    parse, good = PARSERS[name]
    assert parse(good) not in (None, {}, ())
    nothing = parse("")
    assert nothing is not False and nothing != 0
    assert not isinstance(nothing, Memory) or set(vars(nothing).values()) == {None}


@given(mangled(MEMINFO))
def test_a_number_is_read_whole_or_not_at_all(text: str) -> None:
    known = {f"{value}" for value in (127600812, 120000000, 524288, 400000, 16777212)}
    for value in vars(memory.parse(text)).values():
        assert value is None or str(value // 1024) in known or any(c.isdigit() for c in text.replace(MEMINFO, ""))


@given(st.integers(0, len(QUERY)))
def test_a_truncated_answer_is_never_another_driver(cut: int) -> None:
    assert gpu.parse_gpu(said(QUERY[:cut])).driver in (None, "580.142")


def test_a_good_spark() -> None:
    found = gpu.parse_gpu(said(QUERY))
    assert (found.state, found.name, found.driver, found.compute_capability) == ("ok", "NVIDIA GB10", "580.142", "12.1")
    assert found.memory is None, "a GB10 has no memory of its own, and it is not 0"
    assert (found.temperature, found.utilization, found.clock, found.power) == (41, 0, 208, 4.12)
    assert gpu.parse_cuda(VERSION) == "13.0"
    assert gpu.parse_processes(APPS) == (
        (2065247, "VLLM::Worker_TP0", 102843 * 1024**2),
        (88, "/opt/a, b/python3", None),
    )


def test_a_machine_that_says_nothing_but_its_driver() -> None:
    found = gpu.parse_gpu(said(b"[N/A], 580.142, [N/A], [N/A], [N/A], [Not Supported], [N/A], [Unknown Error]\n"))
    assert found == Gpu("ok", driver="580.142")


@pytest.mark.parametrize(
    ("stdout", "stderr", "code", "state"),
    [
        (b"Failed to initialize NVML: Driver/library version mismatch\n", b"", 18, "mismatch"),
        (b"No devices were found\n", b"", 6, "no-devices"),
        (b"", b"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", 9, "no-driver"),
        (b"", b"", 0, "unreadable"),
        (b"\xff\xfe\x00garbage", b"", 0, "unreadable"),
        (QUERY, b"", 1, "unreadable"),
        (b"NVIDIA GB10, 580.142\n", b"", 0, "unreadable"),
        (QUERY.replace(b"580.142", b"[N/A]"), b"", 0, "unreadable"),
        (b'Field "colour" is not a valid field to query.\n', b"", 2, "unreadable"),
    ],
)
def test_a_sick_one_says_how(stdout: bytes, stderr: bytes, code: int, state: str) -> None:
    found = gpu.parse_gpu(said(stdout, stderr, code))
    assert found.state == state
    assert found.driver is None
    assert found.detail and found.detail.isascii()


@given(st.binary(), st.binary(), st.integers(0, 255))
def test_noise_is_never_a_good_gpu(stdout: bytes, stderr: bytes, code: int) -> None:
    found = gpu.parse_gpu(said(stdout, stderr, code))
    assert found.state == "unreadable" or found.driver
    assert found.detail.isascii()


def test_the_last_update_counts_and_no_serial_number_is_kept() -> None:
    found = system.parse_dgx(DGX)
    assert found["DGX_OTA_VERSION"] == "7.5.0"
    assert "1234567890" not in str(found)


@given(mangled(DGX))
def test_no_mangling_lets_a_serial_number_through(text: str) -> None:
    assert "1234567890" not in str(system.parse_dgx(text).get("DGX_SERIAL_NUMBER", ""))


def test_the_driver_in_the_kernel() -> None:
    assert driver.parse_module(MODULE) == "580.142"
    assert driver.parse_packages(DPKG) == ("580-open", "580.142")
    assert driver.parse_xids(XID + XID) == (119,)
    assert driver.agreement("580.142", Gpu("ok", driver="580.142")) == "same"
    assert driver.agreement("580.126.09", Gpu("ok", driver="580.142")) == "mismatch"
    assert driver.agreement(None, Gpu("mismatch")) == "mismatch"
    assert driver.agreement(None, Gpu("no-driver")) == "not-loaded"
    assert driver.agreement("580.142", Gpu("timeout")) == "unknown"


def test_which_kernel_boots_next() -> None:
    installed = ["6.17.0-1009-nvidia", "6.17.0-1014-nvidia", "7.0.0-10-nvidia", "old"]
    title = 'GRUB_DEFAULT="Advanced options for Ubuntu>Ubuntu, with Linux 6.17.0-1014-nvidia"\n'
    assert kernel.boots_next("", "", "", installed) == "7.0.0-10-nvidia"
    assert kernel.boots_next(GRUB, "GRUB_DEFAULT=0\n", "", installed) == "6.17.0-1021-nvidia"
    assert kernel.boots_next(GRUB, title, "", installed) == "6.17.0-1014-nvidia"
    once = "next_entry=gnulinux-6.17.0-1009-nvidia-advanced-5c8\n"
    assert kernel.boots_next(GRUB, title, once, installed) == "6.17.0-1009-nvidia"
    assert kernel.boots_next(GRUB, "GRUB_DEFAULT=saved\n", "", installed) == "6.17.0-1021-nvidia"
    assert kernel.boots_next(GRUB, "GRUB_DEFAULT=3\n", "", installed) is None
    assert kernel.boots_next("", "", "", []) is None


def test_the_fabric() -> None:
    one, two = "enp1s0f0np0", "enP2p1s0f0np0"
    assert fabric.twin(one, [one, two, "enp1s0f1np1"]) == two
    assert fabric.twin(two, [one, two]) == one
    assert fabric.twin("enp1s0f1np1", [one, two]) is None
    assert [fabric.parse_state(text) for text in ("4: ACTIVE", "1: DOWN", "")] == ["up", "down", "unknown"]
    assert fabric.parse_addresses(ADDRESSES) == {one: ("203.0.113.11/25",)}
    assert fabric.parse_number("-1") is None


def test_tools_and_units() -> None:
    assert toolchain.parse_help(PTXAS) is True
    assert toolchain.parse_help("Allowed values: 'sm_120','sm_120a'") is False
    assert toolchain.parse_help(None) is None
    assert toolchain.parse_cuda(NVCC) == "13.0.88"
    assert processes.parse_unit(CGROUP) == "vllm-a.service"
    assert processes.parse_unit("0::/user.slice/user-1000.slice/session-4.scope\n") == "session-4.scope"
    assert system.parse_remove_ipc(["[Login]\n#RemoveIPC=no\n"]) is True
    assert system.parse_remove_ipc(["RemoveIPC=yes", "RemoveIPC=no"]) is False


def test_twins_are_told_by_a_digest_that_gives_nothing_away() -> None:
    one = system.digest("4c4c4544004d3010")
    assert one == system.digest("4c4c4544004d3010") != system.digest("4c4c4544004d3011")
    assert "4c4c" not in str(one)
    assert system.digest("") is None and system.digest(None) is None


def test_room_is_that_of_the_nearest_parent(tmp_path: Path) -> None:
    there, not_yet = disk.look(str(tmp_path)), disk.look(str(tmp_path / "a" / "b"))
    assert not_yet.total == there.total > 0


def test_versions_are_numbers_not_text() -> None:
    order = ["580.95.05", "580.142", "580.142.01", "590"]
    assert sorted(order, key=source.version_key) == order


def test_a_lock_is_seen_and_not_taken(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.touch()
    assert processes.lock_holder(str(lock)) is None
    hold = textwrap.dedent(f"""
        import fcntl, sys
        file = open({str(lock)!r}, "r+")
        fcntl.lockf(file, fcntl.LOCK_EX)
        print("held", flush=True)
        sys.stdin.read()
    """)
    with subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout and other.stdout.readline()
        assert processes.lock_holder(str(lock)) == other.pid
        other.communicate()
    assert processes.lock_holder(str(tmp_path / "none")) is None


def test_programs_that_do_not_answer() -> None:
    assert Program(["none-such"]).said() == Said("missing", detail="none-such: command not found")
    assert Program(["sh", "-c", "echo out; echo err >&2; exit 3"]).said() == Said("ended", b"out\n", b"err\n", 3)
    hung = Program(["sleep", "60"], timeout=0.2)
    assert hung.said() == Said("timeout", detail="sleep gave no answer within 0 s")
    assert Program(["yes"], timeout=60).said().state == "timeout", "what never stops printing is stopped"
    assert os.environ.get("LC_ALL") != "C.UTF-8" or Program(["sh", "-c", "echo $LC_ALL"]).said().text == "C.UTF-8\n"
