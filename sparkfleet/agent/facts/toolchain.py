"""What the first start of an engine compiles with: Triton a launcher in C, FlashInfer its kernels, both with ptxas."""

import os
import re
import shutil

from .shapes import Toolchain
from .source import Program, text

#: Where units look for programs (``roles/_lib/render.py``).
PATH = "/usr/local/cuda/bin:/usr/local/bin:/usr/bin:/bin"
_CUDA = "/usr/local/cuda"


class Questions:
    """What is asked of ptxas: the architectures it knows are in its help."""

    def __init__(self) -> None:
        self._help = Program((f"{_CUDA}/bin/ptxas", "--help"))
        self._version = Program((f"{_CUDA}/bin/ptxas", "--version"))

    def toolchain(self, python: str) -> Toolchain:
        """The tools, for releases that are built with ``python``."""
        return Toolchain(
            gcc=shutil.which("gcc", path=PATH) or shutil.which("cc", path=PATH),
            headers=any(os.path.isfile(f"{home}/include/python{python}/Python.h") for home in ("/usr", "/usr/local")),
            nvcc=parse_cuda(text(f"{_CUDA}/version.json") or "") if shutil.which("nvcc", path=PATH) else None,
            ninja=shutil.which("ninja", path=PATH),
            ptxas=parse_release(self._version.said().text or ""),
            ptxas_sm_121a=parse_help(self._help.said().text),
        )


def parse_help(content: str | None) -> bool | None:
    """Whether the architectures that ``ptxas --help`` lists have sm_121a; None when it does not list any."""
    known = set(re.findall(r"\bsm_[0-9]{2,3}[af]?\b", content or ""))
    return "sm_121a" in known if known else None


def parse_release(content: str) -> str | None:
    """The CUDA version in what ``ptxas --version`` prints."""
    found = re.search(r"\brelease ([0-9]{1,3}\.[0-9]{1,3})\b", content)
    return found[1] if found else None


def parse_cuda(content: str) -> str:
    """nvcc's version in the toolkit's version.json; "unknown" where that is not what it should be."""
    found = re.search(r'"cuda_nvcc"\s*:\s*\{[^}]*"version"\s*:\s*"([0-9.]{1,20})"', content)
    return found[1] if found else "unknown"
