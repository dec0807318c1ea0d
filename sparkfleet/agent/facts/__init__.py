"""The machine as it is: one look at everything, a module for each room.

Each room has a pure parser and a thin reader. Programs are started first and asked for their answers last, so that
the whole takes as long as the slowest of them. A tool that is missing, hangs, fails or prints noise is a fact about the
machine, never a crash. Formats are those of real Sparks, recorded in lab/standins/scenarios.
"""

from collections.abc import Iterable

from .shapes import Machine


def examine(paths: Iterable[str], ports: Iterable[int], python: str, now: float) -> Machine:
    """Look at this machine.

    ``paths`` are where room is needed, ``ports`` those that units listen on, ``python`` the minor version that
    releases are built with, ``now`` is the control machine's clock.
    """
    # Here, because a guard wants few of the rooms and has little time.
    from . import disk, driver, fabric, gpu, kernel, memory, processes, system, toolchain
    from .source import lab

    smi = gpu.Questions()
    systemd, dpkg, ip, ptxas = system.Questions(), driver.Questions(), fabric.Questions(), toolchain.Questions()
    state = systemd.system(now)
    boots, room, disks = kernel.look(), memory.look(), tuple(disk.look(path) for path in dict.fromkeys(paths))
    release, tools, cables = system.release(), ptxas.toolchain(python), ip.fabric()
    seen = smi.gpu()
    return Machine(
        lab=lab(),
        gpu=seen,
        driver=dpkg.driver(seen),
        kernel=boots,
        memory=room,
        disks=disks,
        toolchain=tools,
        fabric=cables,
        release=release,
        system=state,
        processes=processes.look(ports, smi.processes() if seen.state == "ok" else None),
    )
