"""What lab hosts are served from: the engine's wheelhouse and the tiny models, made once into the cache."""

from collections.abc import Callable

from lab import mirror, models, wheelhouse

#: Where a host finds the cache's wheelhouses and models, as it would a lab's NFS share or a USB disk.
ON_HOST = "/srv/sparkfleet"


def make(report: Callable[[str], None]) -> None:
    """Have wheelhouse and models complete; what is there already is not made again. ``report`` gets the progress.

    Raises UserError when a package source, the disk or the network does not give what is needed.
    """
    models.write_all()
    wheelhouse.make(python=mirror.python(), progress=report)


def settings() -> dict[str, object]:
    """What a deploy to a lab host is told: settings of ``group_data/all.py`` that differ in the lab."""
    house = wheelhouse.default_path(mirror.python())
    return {
        "recipes": [models.HEALTHY],
        "python": mirror.python(),
        "wheelhouse": f"{ON_HOST}/wheelhouse/{house.name}",
        "lock": str(house / wheelhouse.COMPLETE),
        "models": f"{ON_HOST}/models/{models.default_path().name}",
        "systemd": 252,  # that of Debian bookworm
        "os_reserve": 1.0,  # the hosts share this machine's memory; nothing freezes if it runs out
    }
