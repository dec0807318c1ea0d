"""What a lab host pretends: outputs and files recorded from real Sparks, one TOML file per situation.

``standins/scenarios/good.toml`` explains the format; a scenario says only how it differs from its ``base``.
"""

import json
import shutil
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import tomllib

from sparkfleet.errors import UserError

STANDINS = Path(__file__).parent / "standins"
MARK = "etc/sparkfleet-lab"  #: a host with this directory is a lab's, and files under its root/ stand in for real ones


def names() -> list[str]:
    return sorted(p.stem for p in (STANDINS / "scenarios").glob("*.toml"))


def load(name: str) -> dict[str, Any]:
    """A scenario with its bases merged in; tables are merged, anything else replaces."""
    if name not in names():
        raise UserError(f"Scenario {name!r} does not exist; there are {', '.join(names())}.")
    own = tomllib.loads((STANDINS / "scenarios" / f"{name}.toml").read_text())
    base = own.pop("base", None)
    return _merged(load(base), own) if base else own


def apply(root: Path, name: str, fabric: dict[str, str]) -> None:
    """Make the host whose files are at ``root`` play a scenario from its next command on; it may be running.

    ``fabric`` is its address on each fabric interface.
    """
    scenario = load(name)
    mark = root / MARK
    mark.mkdir(exist_ok=True)
    absent = {path: "" for other in names() for path in _files(load(other), fabric)}
    for path, content in {**absent, **_files(scenario, fabric)}.items():
        _write(root / path[1:], content)
    _write(mark / "scenario.json", json.dumps({k: scenario[k] for k in ("smi", "gpu")}, indent=1) + "\n")
    program = root / "usr/bin/nvidia-smi"
    if scenario["smi"].get("missing"):
        program.unlink(missing_ok=True)
    else:
        shutil.copy(STANDINS / "nvidia-smi", program)
        program.chmod(0o755)
    _write(mark / "scenario", name + "\n")


def _files(scenario: dict[str, Any], fabric: dict[str, str]) -> dict[str, str]:
    """path -> content of all files a scenario speaks of."""
    files: dict[str, str] = dict(scenario["files"])
    for interface, port in scenario.get("fabric", {}).items():
        for path, content in _port(interface, port, fabric[interface]).items():
            files[f"/{MARK}/root/sys/class/{path}"] = f"{content}\n"
    return files


def _port(interface: str, port: dict[str, str], address: str) -> dict[str, str]:
    """A ConnectX port as sysfs shows it. Of its four addresses (GIDs), the last is RoCE v2 over IPv4."""
    link_local, mapped = "fe80:0000:0000:0000:0053:50ff:fe00:0001", f"0000:0000:0000:0000:0000:ffff:{_hex(address)}"
    where = f"infiniband/{port['device']}/ports/1"
    files = {f"{where}/{name}": port[name] for name in ("state", "phys_state", "rate")}
    files |= {f"{where}/link_layer": "Ethernet", f"net/{interface}/speed": port["speed"]}
    for index, gid in enumerate((link_local, link_local, mapped, mapped)):
        files[f"{where}/gids/{index}"] = gid
        files[f"{where}/gid_attrs/types/{index}"] = ("IB/RoCE v1", "RoCE v2")[index % 2]
        files[f"{where}/gid_attrs/ndevs/{index}"] = interface
    return files


def _hex(address: str) -> str:
    packed = ip_address(address).packed.hex()
    return f"{packed[:4]}:{packed[4:]}"


def _write(path: Path, content: str) -> None:
    if not content:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(path.name + ".new")  # renamed: a reader in the running host never sees half of it
    fresh.write_text(content)
    fresh.rename(path)


def _merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = _merged(result[key], value) if both else value
    return result
