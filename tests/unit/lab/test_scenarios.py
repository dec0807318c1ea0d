"""What a lab host pretends is what real Sparks were seen to print."""

import importlib.util
import json
import os
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

from lab import scenarios
from sparkfleet.errors import UserError

FABRIC = {"enp1s0f0np0": "203.0.113.11", "enP2p1s0f0np0": "203.0.113.139"}


def program(root: Path) -> ModuleType:
    """The stand-in as a module that reads the scenario of the host at ``root``."""
    loader = SourceFileLoader("standin", str(scenarios.STANDINS / "nvidia-smi"))
    spec = importlib.util.spec_from_loader("standin", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    module.SCENARIO = str(root / scenarios.MARK / "scenario.json")  # type: ignore[attr-defined]
    return module


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for directory in ("etc", "usr/bin"):
        (tmp_path / directory).mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize("name", scenarios.names())
def test_every_scenario_can_be_played_and_says_what_it_is(name: str, root: Path) -> None:
    assert scenarios.load(name)["description"]
    scenarios.apply(root, name, FABRIC)
    assert (root / "etc/sparkfleet-lab/scenario").read_text() == f"{name}\n"
    known = {"description", "smi", "gpu", "files", "fabric"}
    assert set(scenarios.load(name)) <= known
    assert set(scenarios.load(name)["smi"]) <= {"only", "exit", "delay", "stdout", "stderr", "noise", "missing"}


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (
            "--query-gpu=name,driver_version,compute_cap --format=csv",
            "name, driver_version, compute_cap\nNVIDIA GB10, 580.142, 12.1\n",
        ),
        ("--query-gpu=name,driver_version,compute_cap --format=csv,noheader", "NVIDIA GB10, 580.142, 12.1\n"),
        ("--query-gpu=index,memory.total,memory.free --format=csv,noheader,nounits", "0, [N/A], [N/A]\n"),
        ("--query-gpu=power.draw,power.limit --format=csv", "power.draw [W], power.limit [W]\n4.12 W, [N/A]\n"),
        (
            "--query-gpu=index,gpu_name,pci.bus_id,memory.total --format=csv,noheader",
            "0, NVIDIA GB10, 0000000F:01:00.0, [N/A]\n",
        ),
        (
            "--version",
            "NVIDIA-SMI version  : 580.142\nNVML version        : 580.142\n"
            "DRIVER version      : 580.142\nCUDA Version        : 13.0\n",
        ),
        (
            "--query-compute-apps=pid,process_name,used_memory --format=csv",
            "pid, process_name, used_gpu_memory [MiB]\n",
        ),
    ],
)
def test_the_words_of_the_real_program(
    arguments: str, printed: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenarios.apply(root, "good", FABRIC)
    smi = program(root)
    smi.engines = lambda: iter(())
    assert smi.main(arguments.split()) == 0
    assert capsys.readouterr().out == printed


def test_an_engine_is_listed_with_its_memory(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenarios.apply(root, "good", FABRIC)
    smi = program(root)
    smi.engines = lambda: iter([(2065247, "VLLM::Worker_TP0", 102843)])
    smi.main(["--query-compute-apps=pid,process_name,used_memory", "--format=csv,noheader"])
    assert capsys.readouterr().out == "2065247, VLLM::Worker_TP0, 102843 MiB\n"


def test_the_views_for_people(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenarios.apply(root, "newer", FABRIC)
    smi = program(root)
    for arguments, words in (
        ([], "Driver Version: 580.173.02"),
        (["-q"], ": 580.173.02"),
        (["-L"], "GPU 0: NVIDIA GB10"),
    ):
        assert smi.main(arguments) == 0
        assert words in capsys.readouterr().out


def test_what_it_does_not_know_is_refused(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenarios.apply(root, "good", FABRIC)
    smi = program(root)
    assert smi.main(["--query-gpu=name,colour", "--format=csv"]) == 2
    assert capsys.readouterr().out == 'Field "colour" is not a valid field to query.\n\n'
    assert smi.main(["--nonsense"]) == 2
    assert smi.main(["--query-gpu=name"]) == 2


@pytest.mark.parametrize(
    ("name", "status", "words"),
    [
        ("mismatch", 18, b"Failed to initialize NVML: Driver/library version mismatch"),
        ("no-devices", 6, b"No devices were found"),
        ("no-driver", 9, b"couldn't communicate with the NVIDIA driver"),
        ("garbage", 0, b"\x00\xff\x1b"),
    ],
)
def test_a_sick_driver_answers_every_question_alike(name: str, status: int, words: bytes, root: Path) -> None:
    scenarios.apply(root, name, FABRIC)
    text = (root / "usr/bin/nvidia-smi").read_text()
    own = root / "nvidia-smi"
    own.write_text(text.replace("/etc/sparkfleet-lab", str(root / "etc/sparkfleet-lab")))
    done = subprocess.run([sys.executable, own, "--query-gpu=name", "--format=csv"], capture_output=True, check=False)
    assert done.returncode == status
    assert words in done.stdout
    if name == "garbage":
        with pytest.raises(UnicodeDecodeError):
            done.stdout.decode()


def test_changing_scenarios_leaves_no_file_of_the_last(root: Path) -> None:
    scenarios.apply(root, "good", FABRIC)
    version = root / "etc/sparkfleet-lab/root/proc/driver/nvidia/version"
    assert "580.142" in version.read_text()
    assert 'DGX_OTA_VERSION="7.5.0"' in (root / "etc/dgx-release").read_text()
    scenarios.apply(root, "reimaged", FABRIC)
    assert "OTA" not in (root / "etc/dgx-release").read_text()
    scenarios.apply(root, "no-driver", FABRIC)
    assert not version.exists()
    scenarios.apply(root, "no-nvidia-smi", FABRIC)
    assert not (root / "usr/bin/nvidia-smi").exists()
    scenarios.apply(root, "not-a-spark", FABRIC)
    assert not (root / "etc/dgx-release").exists()
    assert os.access(root / "usr/bin/nvidia-smi", os.X_OK)
    assert json.loads((root / "etc/sparkfleet-lab/scenario.json").read_text())["gpu"]["fields"]["compute_cap"] == "8.9"


def test_a_port_of_the_fabric_has_its_own_address_as_last_gid(root: Path) -> None:
    scenarios.apply(root, "good", FABRIC)
    port = root / "etc/sparkfleet-lab/root/sys/class/infiniband/roceP2p1s0f0/ports/1"
    assert (port / "gids/3").read_text() == "0000:0000:0000:0000:0000:ffff:cb00:718b\n"
    assert (port / "gid_attrs/types/3").read_text() == "RoCE v2\n"
    assert (port / "gid_attrs/ndevs/3").read_text() == "enP2p1s0f0np0\n"
    scenarios.apply(root, "no-cable", FABRIC)
    assert (port / "state").read_text() == "1: DOWN\n"


def test_no_scenario_holds_a_serial_number() -> None:
    for name in scenarios.names():
        for content in scenarios.load(name)["files"].values():
            for line in content.splitlines():
                if "SERIAL" in line:
                    assert line in ('DGX_SERIAL_NUMBER="LAB-NOT-A-SERIAL"', 'DGX_SERIAL_NUMBER="Not Specified"')


def test_an_unknown_scenario_names_those_there_are() -> None:
    with pytest.raises(UserError, match="Scenario 'fine' does not exist; there are first-update, garbage, good, "):
        scenarios.load("fine")
