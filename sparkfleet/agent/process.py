"""What a process was started with, as the kernel has it."""


def environment_of(pid: int) -> dict[str, str]:
    """The environment that a process was started with; empty when it is gone."""
    return dict(entry.partition("=")[::2] for entry in _read(pid, "environ"))


def command_of(pid: int) -> list[str]:
    """The command line of a process; empty when it is gone."""
    return _read(pid, "cmdline")


def _read(pid: int, what: str) -> list[str]:
    try:
        with open(f"/proc/{pid}/{what}", "rb") as file:
            return [part.decode("utf-8", "replace") for part in file.read().split(b"\0") if part]
    except OSError:
        return []
