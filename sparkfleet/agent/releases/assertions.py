"""What must hold of a release before it is sealed, told without a GPU: its CUDA is the right one, it can be imported.

All that does not hold is told at once, each with what was expected and what was found.
"""

import ast
import os
import pwd
import re
import subprocess
import tempfile
import time
from pathlib import Path

from ..errors import HostError
from ..progress import say
from ..shapes import Assertions
from . import elf

#: Seconds for all imports: from a cold disk the libraries of torch alone are gigabytes.
TIMEOUT = 600.0

#: Who imports: an account that owns nothing and can write nowhere, so what it can import, every unit's user can.
NOBODY = "nobody"

_BEGUN = "sparkfleet-import: "
_PROGRAM = f"""
import importlib, sys
for name in sys.argv[1:]:
    print("{_BEGUN}" + name, flush=True)
    importlib.import_module(name)
"""


def check(release: Path, site: Path, wanted: Assertions, foreign: bool = False) -> None:
    """Hold ``release`` to ``wanted``. ``foreign``: it is for another kind of machine, so nothing of it can be run here.

    Raises HostError naming everything that was expected and not found.
    """
    wrong = _cuda(site, wanted.cuda) if wanted.cuda is not None else []
    if wanted.imports and foreign:
        say(f"not tried, the release is for another kind of machine: import {', '.join(wanted.imports)}")
    else:
        wrong += _imports(release, wanted.imports) if wanted.imports else []
    if wrong:
        raise HostError(f"{release}: it is not what its engine must be. {'; '.join(wrong)}. Nothing was switched.")


def _cuda(site: Path, major: int) -> list[str]:
    found = [f"torch is built for CUDA {torch_cuda(site) or 'none'}"] if _major(torch_cuda(site)) != major else []
    linked = libcudart(site / "vllm")
    if not linked:
        found.append("no library of vllm is linked to libcudart")
    found += [f"vllm/{name} needs libcudart.so.{one}" for name, one in linked.items() if one != major]
    return [f"expected CUDA {major}, found: {', '.join(found)}"] if found else []


def torch_cuda(site: Path) -> str:
    """The CUDA that torch was built for (``13.0``), as its ``torch/version.py`` says; empty for a build without."""
    path = site / "torch" / "version.py"
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError) as error:
        raise HostError(f"{path}: expected torch's own account of itself; it cannot be read ({error}).") from None
    for statement in tree.body:
        target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
        value = getattr(statement, "value", None)
        if isinstance(target, ast.Name) and target.id == "cuda" and isinstance(value, ast.Constant):
            return str(value.value or "")
    return ""


def _major(version: str) -> int | None:
    head = version.partition(".")[0]
    return int(head) if head.isdecimal() else None


def libcudart(package: Path) -> dict[str, int]:
    """The major of libcudart that each of a package's own libraries needs, for those that need any."""
    found = {}
    for path in sorted(package.glob("*.so")):
        for library in elf.read(path).needed:
            if match := re.fullmatch(r"libcudart\.so\.(\d+)", library):
                found[path.name] = int(match[1])
    return found


def _imports(release: Path, modules: tuple[str, ...]) -> list[str]:
    """Why one of ``modules`` cannot be imported by the release's Python; empty when all can, one after the other."""
    began = time.monotonic()
    try:
        done = _as_nobody((str(release / "bin" / "python"), "-I", "-c", _PROGRAM, *modules))
    except subprocess.TimeoutExpired:
        return [f"`import {', '.join(modules)}` did not end within {TIMEOUT:.0f} s"]
    except OSError as error:
        return [f"the release's python cannot be run: {error.strerror or error}"]
    if done.returncode == 0:
        say(f"import {', '.join(modules)}: {time.monotonic() - began:.1f} s")
        return []
    begun = [line.removeprefix(_BEGUN) for line in done.stdout.splitlines() if line.startswith(_BEGUN)]
    said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    reason = said[-1][:300] if said else f"exit status {done.returncode}"
    return [f"`import {begun[-1]}` failed: {reason}" if begun else f"the release's python fails: {reason}"]


def _as_nobody(argv: tuple[str, ...]) -> "subprocess.CompletedProcess[str]":
    account = pwd.getpwnam(NOBODY)
    with tempfile.TemporaryDirectory(prefix="sparkfleet-import-") as home:
        # Some packages make a cache at import; what they find there must not be what another run left.
        os.chown(home, account.pw_uid, account.pw_gid)
        environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": home,
            "TMPDIR": home,
            "LC_ALL": "C.UTF-8",
            "CUDA_VISIBLE_DEVICES": "",
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
        }
        return subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT,
            env=environment,
            cwd=home,
            errors="replace",
            user=account.pw_uid,
            group=account.pw_gid,
            extra_groups=(),
        )
