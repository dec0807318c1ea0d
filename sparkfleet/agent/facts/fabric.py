"""The ConnectX-7 ports. One cable is two of them: the card hangs on two PCIe roots, and each has its own interface."""

import json
import re
from collections.abc import Iterable

from .shapes import Fabric, FabricPort, PortState
from .source import Program, kernel_path, kernel_text, names

_DEVICES = "/sys/class/infiniband"


class Questions:
    """What is asked of ip: the addresses."""

    def __init__(self) -> None:
        self._addresses = Program(("ip", "-j", "-4", "address", "show"))

    def fabric(self) -> Fabric:
        """Every port that there is."""
        devices = {device: _interface(device) for device in names(kernel_path(_DEVICES))}
        interfaces = [one for one in devices.values() if one]
        addresses = parse_addresses(self._addresses.said().text or "") if interfaces else {}
        ports = tuple(
            _port(device, interface, interfaces, addresses) for device, interface in devices.items() if interface
        )
        return Fabric(ports, sum(port.state == "up" for port in ports))


def _port(device: str, interface: str, interfaces: list[str], addresses: dict[str, tuple[str, ...]]) -> FabricPort:
    port, net = f"{_DEVICES}/{device}/ports/1", f"/sys/class/net/{interface}"
    return FabricPort(
        interface=interface,
        device=device,
        twin=twin(interface, interfaces),
        state=parse_state(kernel_text(f"{port}/state") or ""),
        rate=kernel_text(f"{port}/rate"),
        speed=parse_number(kernel_text(f"{net}/speed") or ""),
        mtu=parse_number(kernel_text(f"{net}/mtu") or ""),
        addresses=addresses.get(interface, ()),
    )


def _interface(device: str) -> str | None:
    """The network interface of an RDMA device: the name is in the attributes of its first GID that has one."""
    where = f"{_DEVICES}/{device}/ports/1/gid_attrs/ndevs"
    for index in names(kernel_path(where)):
        if found := kernel_text(f"{where}/{index}"):
            return found
    return next(iter(names(kernel_path(f"{_DEVICES}/{device}/device/net"))), None)


def twin(interface: str, others: Iterable[str]) -> str | None:
    """The interface on the other PCIe root that shares the cable: enp1s0f0np0 and enP2p1s0f0np0."""

    def without_root(name: str) -> str:
        return re.sub(r"^en(P[0-9]+)?", "en", name)

    return next((one for one in others if one != interface and without_root(one) == without_root(interface)), None)


def parse_state(content: str) -> PortState:
    """``4: ACTIVE`` is up; what is not read is not down."""
    found = re.fullmatch(r"([0-5]): [A-Z_]+", content)
    if not found:
        return "unknown"
    return "up" if found[1] == "4" else "down"


def parse_number(content: str) -> int | None:
    """A number of sysfs; -1 is its word for unknown."""
    return int(content) if re.fullmatch(r"[0-9]{1,9}", content) else None


def parse_addresses(content: str) -> dict[str, tuple[str, ...]]:
    """IPv4 addresses of each interface, from ``ip -j address``."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    result = {}
    for link in found if isinstance(found, list) else ():
        if isinstance(link, dict) and isinstance(link.get("ifname"), str):
            result[link["ifname"]] = tuple(_addresses(link.get("addr_info")))
    return result


def _addresses(infos: object) -> Iterable[str]:
    for one in infos if isinstance(infos, list) else ():
        if isinstance(one, dict) and isinstance(one.get("local"), str) and isinstance(one.get("prefixlen"), int):
            yield f"{one['local']}/{one['prefixlen']}"
