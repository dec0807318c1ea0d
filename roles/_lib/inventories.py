"""The inventory of a run, looked at before any host is connected to.

pyinfra lets the last of two entries win, and ends with status 0 when no host is left; neither can be meant.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import click
from pyinfra.api import Config, Host, Inventory, State
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.inventory import extract_name_data
from pyinfra_cli.exceptions import CliError

from roles._lib.unreached import Unreached

_make_hosts_and_groups = Inventory.make_hosts_and_groups


class Refused(PyinfraError, CliError):  # type: ignore[misc]
    """Ends the run for all hosts in the user's words; of these two, pyinfra shows one without a traceback."""


def watch(state: State) -> None:
    """Have the inventory that pyinfra is about to read for ``state`` refused, with Refused, if it cannot be meant, and
    why a host could not be connected to remembered.

    Nobody has been connected to then. pyinfra has no hook for that, and keeps neither what was named twice nor which
    pattern of a limit was without effect: what makes its hosts is wrapped, and what begins the run with them.
    """
    init = state.init

    def make_hosts_and_groups(self: Inventory, names: list[Any], groups: Mapping[str, tuple[list[Any], Any]]) -> None:
        check_lists(_asked()["inventory"], {"all": names, **{name: group for name, (group, _) in groups.items()}})
        _make_hosts_and_groups(self, names, groups)

    def begin(inventory: Inventory, config: Config | None, initial_limit: list[Host] | None = None) -> None:
        check_choice(inventory, initial_limit, **_asked())
        init(inventory, config, initial_limit=initial_limit)
        tasks = all(one.endswith(".py") for one in click.get_current_context().params["operations"])
        state.add_callback_handler(Unreached(runs_tasks=tasks))

    Inventory.make_hosts_and_groups = make_hosts_and_groups  # type: ignore[method-assign]
    state.init = begin  # type: ignore[method-assign]


def _asked() -> dict[str, Any]:
    """What pyinfra's command line was given."""
    params = click.get_current_context().params
    return {name: params[name] for name in ("inventory", "limit", "exclude")}


def check_lists(inventory: str, lists: Mapping[str, Iterable[Any]]) -> None:
    """Raises Refused, naming host and list, when one of ``lists`` names a host twice."""
    twice: dict[str, str] = {}
    for group, entries in lists.items():
        for name, times in Counter(name for name, _ in extract_name_data(list(entries))).items():
            if times > 1:
                twice.setdefault(name, group)  # pyinfra makes another list, of all hosts, with the name of the file
    if twice:
        named = "; ".join(f"{name} is named more than once in the list `{group}`" for name, group in twice.items())
        raise Refused(
            f"{inventory}: {named}. Only the last entry would count, whatever the others say: leave one of each, or "
            f"give another machine its own name."
        )


def check_choice(
    inventory_hosts: Inventory,
    left: list[Host] | None,
    *,
    inventory: str,
    limit: Iterable[str],
    exclude: Iterable[str],
) -> None:
    """Raises Refused when ``inventory`` is no file with hosts and no host, or when a pattern of ``limit`` or
    ``exclude`` is that of no host. ``left``: the hosts that pyinfra found by both; None without any.
    """
    # pyinfra takes a name without a file for that of a host; .py is a domain, too
    if inventory.endswith(".py") and not Path(inventory).is_file():
        raise Refused(f"{inventory}: there is no such file. {_files(inventory)}")
    if not inventory_hosts.hosts:
        if Path(inventory).is_file():
            raise Refused(f"{inventory}: it has no list with a host in it. Add one, as README.md shows.")
        raise Refused(f"{inventory}: there is no such file, and no host of that name is found. {_files(inventory)}")
    names, lists = list(inventory_hosts.hosts), [name for name, hosts in inventory_hosts.groups.items() if hosts]
    there = f"It has the hosts {_some(names)}" + (f" and the lists {_some(lists)}" if lists else "")
    for option, patterns in (("--limit", limit), ("--exclude", exclude)):
        for pattern in patterns:
            if pattern not in lists and not any(fnmatch(name, pattern) for name in names):
                raise Refused(
                    f"{option} {pattern}: {inventory} has no such host and no such list. {there}: name one of them."
                )
    if left is not None and not left:
        raise Refused(f"--exclude {' '.join(exclude)}: no host of {inventory} is left. {there}: leave one of them.")


def _files(inventory: str) -> str:
    """The inventories that there are beside ``inventory``, or where ours are."""
    beside = Path(inventory).parent
    directory = beside if beside != Path() and beside.is_dir() else Path("inventory")
    if found := sorted(str(path) for path in directory.glob("*.py")):
        return f"There are {_some(found)}: name one of them."
    return "Name the file that lists your Sparks, and run pyinfra in the directory that holds deploy.py."


def _some(names: list[str]) -> str:
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
