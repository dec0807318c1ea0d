"""The case that rules are asked about: the machine, what is asked of it, and what follows from both. Pure."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from ..facts.shapes import Disk, GpuProcess, Machine, PortOwner
from ..shapes import Requirements


@dataclass(frozen=True)
class FileSystem:
    """A file system that sparkfleet writes to; ``paths`` are where."""

    paths: str
    free: int
    total: int
    read_only: bool
    files_free: int | None


@dataclass(frozen=True)
class Room:
    """What a deploy would put on one file system, and what is free there."""

    what: str
    places: str
    needed: int
    free: int


@dataclass(frozen=True)
class Case(Machine):
    """What rules may name. Each of these facts that is no room of the machine is worked out from others.

    ``intruders`` hold a port that a recipe of this host needs, ``strangers`` the GPU: neither is a unit of ours.
    ``strangers_memory`` is what those hold. ``cma_percent`` is how much of the contiguous memory is free.
    ``clock_off`` is the clock's difference in either direction.
    ``one_network``: fabric ports that are up and have addresses in one network.
    """

    needs: Requirements
    file_systems: tuple[FileSystem, ...]
    rooms: tuple[Room, ...]
    intruders: tuple[PortOwner, ...]
    strangers: tuple[GpuProcess, ...]
    strangers_memory: int
    cma_percent: int | None
    clock_off: float
    one_network: tuple[str, ...]


def case(machine: Machine, needs: Requirements, present: Collection[str], units: Collection[str]) -> Case:
    """``present`` names releases and models that are there and need no room, ``units`` those that are ours."""
    strangers = tuple(one for one in machine.processes.gpu or () if one.unit not in units)
    return Case(
        **vars(machine),
        needs=needs,
        file_systems=tuple(_file_systems(machine.disks)),
        rooms=tuple(_rooms(machine.disks, needs, present)),
        intruders=tuple(one for one in machine.processes.ports if one.unit not in units),
        strangers=strangers,
        strangers_memory=sum(one.memory or 0 for one in strangers),
        cma_percent=_percent(machine.memory.cma_free, machine.memory.cma_total),
        clock_off=abs(machine.system.clock_skew),
        one_network=one_network(machine),
    )


def _file_systems(disks: tuple[Disk, ...]) -> Iterator[FileSystem]:
    # One device may be mounted twice, at one place so that it can be written to and at another so that it cannot.
    for mount in dict.fromkeys((disk.device, disk.read_only) for disk in disks):
        here = [disk for disk in disks if (disk.device, disk.read_only) == mount]
        first = here[0]
        paths = [one.path for one in here]
        top = ", ".join(path for path in paths if not any(path.startswith(f"{other}/") for other in paths))
        yield FileSystem("/" if "/" in paths else top, first.free, first.total, first.read_only, first.files_free)


def _rooms(disks: tuple[Disk, ...], needs: Requirements, present: Collection[str]) -> Iterator[Room]:
    by_path = {disk.path: disk for disk in disks}
    for device in dict.fromkeys(disk.device for disk in disks):
        wanted = [
            one for one in needs.disk if by_path[one.path].device == device and one.unless not in present and one.size
        ]
        if wanted:
            yield Room(
                what=" and ".join(one.what for one in wanted),
                places=", ".join(sorted({one.path for one in wanted})),
                needed=sum(one.size for one in wanted),
                free=min(disk.free for disk in disks if disk.device == device),
            )


def _percent(part: int | None, whole: int | None) -> int | None:
    return None if part is None or not whole else part * 100 // whole


def one_network(machine: Machine) -> tuple[str, ...]:
    """Fabric ports that share a network: traffic meant for one of them then leaves by any."""
    networks: dict[str, set[str]] = {}
    for port in machine.fabric.ports:
        for address in port.addresses if port.state == "up" else ():
            networks.setdefault(_network(address), set()).add(port.interface)
    return tuple(sorted({one for members in networks.values() if len(members) > 1 for one in members}))


def _network(address: str) -> str:
    import ipaddress

    try:
        return str(ipaddress.ip_interface(address).network)
    except ValueError:
        return address
