"""Labs of throw-away Sparks: what ``sparkfleet lab`` and the tests are made of.

lab = Lab("test")
first, second = lab.up(2, ["good", "old-driver"])
lab.run(first, ["nvidia-smi", "-L"])
lab.crash(first)
lab.boot(first)
lab.down()
"""

import subprocess
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TypeVar

from lab import access, disk, image, machine, network, requirements, scenarios, state
from lab.image import Report
from lab.state import RUN, Host, Options, Place, locked
from sparkfleet.errors import UserError

DEFAULT = "demo"
T = TypeVar("T")


def _silent(message: str) -> None:
    pass


class Lab:
    """A named group of lab hosts on this machine. Labs do not disturb each other; everything needs root.

    Every method raises ``UserError`` for what a person can mend.
    """

    def __init__(self, name: str = DEFAULT, report: Report = _silent) -> None:
        self.name = name
        self.directory = state.lab_dir(name)
        self.report = report
        self._joining = threading.Lock()  # hosts come up in parallel and share one known_hosts file

    def up(self, count: int, scenario_names: Sequence[str] = (), options: Options | None = None) -> list[Host]:
        """Have ``count`` hosts running and ready, ``spark-01`` and on; the i-th plays the i-th scenario, or ``good``.

        Hosts that run already are kept as they are but for their scenario; one that is off is booted on its own
        disk; rubble of an interrupted ``up`` is cleared first. ``options`` apply to hosts made now.
        """
        wanted = [*scenario_names, *["good"] * (count - len(scenario_names))]
        for name in wanted:
            scenarios.load(name)
        if len(wanted) > count:
            raise UserError(f"{len(wanted)} scenarios were given for {count} hosts; give at most one each.")
        requirements.check()
        base = image.ensure(self.report)
        with self._alone():
            self._clear_rubble()
            planned = self._register(wanted, options or Options())
            access.ensure_key(self.name)
            network.ensure_fabric(self.name)
            tasks = list(zip(planned, wanted, strict=True))
            self._each(tasks, lambda task, cancelled: self._bring_up(*task, base, cancelled))
            return self.hosts()[:count]

    def hosts(self) -> list[Host]:
        """The hosts of this lab that are complete, running or not. Needs no root."""
        return [host for host in state.hosts(self.name) if host.made]

    def host(self, name: str) -> Host:
        for host in self.hosts():
            if host.name == name:
                return host
        have = ", ".join(h.name for h in self.hosts()) or "none; `sparkfleet lab up` starts some"
        raise UserError(f"Lab {self.name!r} has no host {name!r}. It has: {have}.")

    def down(self, names: Iterable[str] = ()) -> list[str]:
        """Switch hosts off and remove all of them that is on this machine; all hosts if none is named.

        Works on whatever an interrupted ``up`` left. Returns the names of the hosts that went.
        """
        names = list(names)
        for name in names:
            if name not in {p.name for p in self._places()}:
                self.host(name)  # raises with the names there are
        if not self.directory.exists() and not disk.leftovers(self.name):
            return []
        requirements.need_root()
        with self._alone():
            going = [p for p in self._places() if not names or p.name in names]
            self._each(going, lambda place, _: self._destroy(place))
            if self._places():
                access.write_known_hosts(self.name)
            else:
                self._end()
        return [place.name for place in going]

    def crash(self, host: Host) -> None:
        """Power loss: every process of the host is killed at once. Its disk stays; ``boot`` starts it again."""
        machine.kill(host.place)

    def boot(self, host: Host) -> Host:
        """Switch on a host that is off, with the disk it had; returns when it is ready."""
        if machine.leader(host.place) is None:
            machine.kill(host.place)  # a half-dead one is in the way
            machine.start(host)
        self._wait(host)
        return host

    def wait(self, host: Host) -> None:
        """Wait until a host that was started or rebooted is ready."""
        self._wait(host)

    def stop(self, host: Host) -> None:
        """Switch a host off in good order."""
        machine.stop(host.place)

    def running(self, host: Host) -> bool:
        return machine.leader(host.place) is not None

    def run(
        self, host: Host, argv: Sequence[str], *, check: bool = True, stdin: str = "", timeout: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as root inside a host without SSH; see ``machine.run``."""
        return machine.run(host, argv, check=check, stdin=stdin, timeout=timeout)

    def ssh(self, host: Host, *command: str) -> list[str]:
        """argv that logs in to a host as ``spark``."""
        return access.ssh_command(host, *command)

    def root(self, host: Host) -> Path:
        """The host's root file system as a directory of this machine, live; without what is mounted inside it."""
        return host.place.root

    def set_scenario(self, host: Host, name: str) -> Host:
        """Make a host, running or not, play another scenario from its next command on."""
        scenarios.apply(host.place.root, name, host.fabric)
        return state.save(host.model_copy(update={"scenario": name}))

    def cut(self, host: Host, interface: str = network.MANAGEMENT) -> None:
        """Pull one of a host's cables; ``mend`` puts it back. Connections over it hang, as they would."""
        network.plug(host, interface, up=False)

    def mend(self, host: Host, interface: str = network.MANAGEMENT) -> None:
        network.plug(host, interface, up=True)

    def _alone(self) -> AbstractContextManager[None]:
        return locked(self.directory, lambda: self.report(f"waiting for another command on lab {self.name!r}"))

    def _places(self) -> list[Place]:
        """Hosts that left anything, in ``/run`` or in the cache."""
        forgotten = [Place(self.name, path.name) for path in disk.leftovers(self.name) if path.is_dir()]
        return sorted([*state.places(self.name), *forgotten], key=lambda place: place.name)

    def _clear_rubble(self) -> None:
        for place in self._places():
            record = state.load(place)
            if record is None or not record.made or not place.root.is_mount():  # nothing to boot from
                self.report(f"{place.name}: clearing what an earlier, interrupted run left")
                self._destroy(place)

    def _register(self, wanted: Sequence[str], options: Options) -> list[Host]:
        """Records of the wanted hosts, those that exist and new ones, with numbers no lab on this machine has."""
        have = {host.name: host for host in self.hosts()}
        names = [f"spark-{i:02}" for i in range(1, len(wanted) + 1)]
        with locked(RUN):
            network.ensure_management()
            taken = {host.number for lab in state.labs() for host in state.hosts(lab)}
            free = [number for number in network.NUMBERS if number not in taken]
            new = [(name, scene) for name, scene in zip(names, wanted, strict=True) if name not in have]
            if len(new) > len(free):
                raise UserError(
                    f"{len(new)} more lab hosts were asked for; this machine has room for {len(free)} more."
                )
            for number, (name, scene) in zip(free, new, strict=False):
                host = Host(lab=self.name, name=name, number=number, scenario=scene, options=options)
                have[name] = state.save(host)
        return [have[name] for name in names]

    def _bring_up(self, host: Host, scene: str, base: Path, cancelled: Callable[[], bool]) -> None:
        if not host.made:
            host = self._make(host, base)
        elif host.scenario != scene:
            host = self.set_scenario(host, scene)
        if machine.leader(host.place) is None:
            machine.kill(host.place)
            machine.start(host)
        self._wait(host, cancelled)
        self.report(f"{host.name} is ready at {host.address} ({host.scenario})")

    def _make(self, host: Host, base: Path) -> Host:
        host_key = host.place.run / "host_key"
        host = state.save(host.model_copy(update={"host_key": access.make_key(host_key, host.name).strip()}))
        network.connect(host)
        disk.make(host, base, host_key, access.key(self.name).with_suffix(".pub").read_text())
        host_key.unlink()  # the host has it now
        with self._joining:
            host = state.save(host.model_copy(update={"made": True}))
            access.write_known_hosts(self.name)
        return host

    def _wait(self, host: Host, cancelled: Callable[[], bool] = lambda: False) -> None:
        if warning := machine.wait_until_ready(host, cancelled):
            self.report(warning)

    def _destroy(self, place: Place) -> None:
        machine.stop(place)
        network.disconnect(place.lab, place.name)
        disk.remove(place)

    def _end(self) -> None:
        """Remove what the hosts of a lab shared, and with the last lab the management network."""
        for mounted in disk.mounts(self.directory):
            disk.unmount(mounted)
        for left in disk.leftovers(self.name):
            image.remove_tree(left)
        disk.forget(self.name)
        image.remove_tree(self.directory)
        with locked(RUN):
            if not state.labs():
                network.remove_management()
                machine.leave()
                with suppress(OSError):  # somebody begins another lab right now
                    RUN.rmdir()

    def _each(self, items: Sequence[T], task: Callable[[T, Callable[[], bool]], None]) -> None:
        """Do a task for all items at once; the first failure, or Ctrl-C, tells the others to stop waiting."""
        cancel = threading.Event()
        with ThreadPoolExecutor(max_workers=8) as pool:
            futures = [pool.submit(task, item, cancel.is_set) for item in items]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                cancel.set()
                raise
