"""The throw-away Sparks of ``sparkfleet lab up``: the lab named by ``$SPARKFLEET_LAB``, else ``demo``."""

import os as _os

from pyinfra.api.exceptions import InventoryError as _InventoryError

from lab import access as _access
from lab import hosts as _labs
from lab import state as _state
from lab.supplies import settings as _settings


def _data(host: _state.Host) -> dict[str, object]:
    """What pyinfra and the roles are told of one lab host."""
    return {
        "ssh_hostname": host.address,
        "ssh_port": 22,
        "ssh_user": _access.USER,
        "ssh_key": str(_access.key(host.lab)),
        "ssh_known_hosts_file": str(_access.known_hosts(host.lab)),
        "ssh_strict_host_key_checking": "yes",
        "ssh_config_file": _os.devnull,  # this machine's own SSH configuration is about other hosts
        **_settings(),
    }


_lab = _os.environ.get("SPARKFLEET_LAB", _labs.DEFAULT)

sparks = [(host.name, _data(host)) for host in _labs.Lab(_lab).hosts()]

if not sparks:
    raise _InventoryError(f"Lab {_lab!r} has no hosts. Start some: sudo sparkfleet lab up")
