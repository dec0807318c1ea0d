"""What an agent can tell about the machine it runs on, room by room.

Sizes are bytes, times seconds, temperatures degrees Celsius. ``None`` means that the machine did not say; it is never
a zero that nobody measured. No serial number is in here: what must tell machines apart is kept as a digest.
"""

from dataclasses import dataclass
from typing import Literal

GpuState = Literal["ok", "mismatch", "no-devices", "no-driver", "missing", "timeout", "unreadable"]
Agreement = Literal["same", "mismatch", "not-loaded", "unknown"]
PortState = Literal["up", "down", "unknown"]


@dataclass(frozen=True)
class Gpu:
    """What ``nvidia-smi`` says. ``detail`` is its own text when it did not answer as it should.

    ``driver`` is the version of the driver's libraries, ``cuda`` the newest CUDA that this driver runs, ``memory``
    what most GPUs report and a GB10 does not. ``temperature``, ``utilization`` (percent), ``clock`` (MHz) and
    ``power`` (W) are of this moment.
    """

    state: GpuState
    name: str | None = None
    compute_capability: str | None = None
    driver: str | None = None
    detail: str = ""
    cuda: str | None = None
    memory: int | None = None
    temperature: int | None = None
    utilization: int | None = None
    clock: int | None = None
    power: float | None = None


@dataclass(frozen=True)
class GpuProcess:
    """A process that holds GPU memory; ``unit`` is its systemd unit."""

    pid: int
    name: str
    memory: int | None
    unit: str | None


@dataclass(frozen=True)
class Driver:
    """The driver's part in the kernel. ``module`` is the version loaded, ``agreement`` how it stands to the libraries.

    ``package`` is the upstream version of the installed driver package, ``branch`` its flavour ("580-open");
    ``xids`` are the error numbers and ``refusals`` the count of NV_ERR_NO_MEMORY in the kernel's log;
    ``options`` names the modprobe files that speak of the driver.
    """

    module: str | None
    agreement: Agreement
    branch: str | None
    package: str | None
    xids: tuple[int, ...] | None
    refusals: int | None
    options: tuple[str, ...]


@dataclass(frozen=True)
class Kernel:
    """The running kernel and the one that boots next; ``..._module``: whether there is an nvidia module for it.

    ``kho`` is what the command line says of Kexec HandOver, which reserves memory: "on" or "off".
    """

    running: str
    running_module: bool | None
    next: str | None
    next_module: bool | None
    kho: str | None


@dataclass(frozen=True)
class Memory:
    """Of /proc/meminfo: that is what a GB10's GPU has, too. ``cma`` is the contiguous part that RDMA draws on."""

    total: int | None
    available: int | None
    cma_total: int | None
    cma_free: int | None
    swap_total: int | None
    swap_free: int | None


@dataclass(frozen=True)
class Disk:
    """The file system that holds ``path`` (or its nearest parent that exists).

    ``files_free`` is how many more files it can hold, None where it has no such bound.
    """

    path: str
    device: int
    free: int
    total: int
    read_only: bool
    files_free: int | None = None


@dataclass(frozen=True)
class Toolchain:
    """What the first start of an engine compiles with: paths of gcc and ninja, versions of nvcc and ptxas.

    ``headers``: whether ``Python.h`` of the Python that releases are built with is there (Triton's launcher);
    ``ptxas_sm_121a``: whether that ptxas can assemble for a GB10.
    """

    gcc: str | None
    headers: bool
    nvcc: str | None
    ninja: str | None
    ptxas: str | None
    ptxas_sm_121a: bool | None


@dataclass(frozen=True)
class FabricPort:
    """A ConnectX-7 port: its network interface, its RDMA device, and the interface that shares its cable.

    ``speed`` is Mb/s; ``addresses`` are IPv4 with prefix length, as ``203.0.113.11/24``.
    """

    interface: str
    device: str
    twin: str | None
    state: PortState
    rate: str | None
    speed: int | None
    mtu: int | None
    addresses: tuple[str, ...]


@dataclass(frozen=True)
class Fabric:
    """The ConnectX-7 ports that are to be seen: none where no cable is plugged in."""

    ports: tuple[FabricPort, ...]
    up: int


@dataclass(frozen=True)
class Release:
    """Which DGX OS. ``ota`` is the release in force: the last update, or the image where there was none."""

    name: str | None
    ota: str | None
    image: str | None
    platform: str | None
    fastos: str | None
    os: str | None
    os_id: str | None
    os_version: str | None


@dataclass(frozen=True)
class System:
    """The machine as an operating system sees it. ``clock_skew`` is its clock minus the control machine's.

    ``machine_id`` and ``host_key`` are digests: they tell whether two machines are twins, and nothing else.
    ``remove_ipc``: whether logind takes a regular user's shared memory away when its last session ends.
    ``own_address`` is what /etc/hosts gives for the host's own name; ``root_caches`` are caches in people's homes
    that belong to root.
    """

    hostname: str
    architecture: str
    boot_id: str | None
    vendor: str | None
    product: str | None
    board: str | None
    bios: str | None
    machine_id: str | None
    host_key: str | None
    systemd: int | None
    remove_ipc: bool
    pythons: dict[str, str]
    own_address: str | None
    root_caches: tuple[str, ...]
    reboot_required: bool
    reboot_packages: tuple[str, ...]
    clock_skew: float


@dataclass(frozen=True)
class PortOwner:
    """A TCP port that was asked about and is taken; by whom, as far as that can be seen."""

    port: int
    pid: int | None
    process: str | None
    unit: str | None


@dataclass(frozen=True)
class Processes:
    """Who else is at work here. ``dpkg`` names the process that holds the package database's lock.

    ``guards`` are programs that end others when memory runs out, ``servers`` other ways to serve models.
    """

    guards: tuple[str, ...]
    servers: tuple[str, ...]
    dpkg: str | None
    ports: tuple[PortOwner, ...]
    gpu: tuple[GpuProcess, ...] | None


@dataclass(frozen=True)
class Machine:
    """What kind of machine this is, and how it is. ``lab`` is the scenario of a lab host."""

    lab: str | None
    gpu: Gpu
    driver: Driver
    kernel: Kernel
    memory: Memory
    disks: tuple[Disk, ...]
    toolchain: Toolchain
    fabric: Fabric
    release: Release
    system: System
    processes: Processes
