"""Why hosts could not be connected to."""

import atexit

from pyinfra.api import Host, State
from pyinfra.api.state import BaseStateCallback

from sparkfleet.agent.wire import legible

#: What pyinfra said of each host that it could not connect to.
_unreached: dict[str, str] = {}

#: What a person does about it, by the beginning of that.
_REMEDIES = (
    ("Could not resolve hostname", "Correct its ssh_hostname in the inventory"),
    ("Authentication error", "Correct its ssh_user and ssh_key in the inventory, or let that key in with ssh-copy-id"),
    ("SSH host key error", "If the host was set up anew, take its old key out of known_hosts with ssh-keygen -R"),
    ("", "Look whether it is on, and whether its ssh_hostname, ssh_port, ssh_user and ssh_key are right"),
)


def why_unreached(name: str) -> str:
    """Why the host ``name`` could not be connected to, as far as pyinfra said, and what to do."""
    reason = legible(" ".join(_unreached.get(name, "").split()))
    remedy = next(remedy for start, remedy in _REMEDIES if reason.startswith(start))
    return f"{reason or 'see above why'}. {remedy}, then run again"


class Unreached(BaseStateCallback):
    """Remembers what pyinfra says of hosts that it cannot connect to."""

    def __init__(self, runs_tasks: bool) -> None:
        self.runs_tasks = runs_tasks

    def host_connect_error(  # type: ignore[override]
        self, state: State, host: Host, error: Exception
    ) -> None:
        """Remembered; and told at the end if it was the last: pyinfra then ends without having begun with a task."""
        _unreached[host.name] = str(error)
        names = [one.name for one in state.inventory if state.is_host_in_limit(one)]
        if _unreached.keys() >= set(names) and self.runs_tasks:
            from roles._lib import report  # which imports this

            atexit.register(report.outcome, names)
