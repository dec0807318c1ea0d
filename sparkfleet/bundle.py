"""The agent as one zipapp file, the same bytes from the same sources on every machine."""

import io
import zipfile
from functools import cache
from hashlib import sha256
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest a zip file can say: no clock in the bytes
_ENTRY = "import sys\nfrom sparkfleet.agent.__main__ import main\nsys.exit(main(sys.argv[1:]))\n"


@cache
def agent() -> bytes:
    """The zipapp: ``sparkfleet.agent`` and nothing else of sparkfleet."""
    sources = {"__main__.py": _ENTRY.encode(), "sparkfleet/__init__.py": (_PACKAGE / "__init__.py").read_bytes()}
    for path in sorted((_PACKAGE / "agent").rglob("*.py")):
        sources[f"sparkfleet/{path.relative_to(_PACKAGE).as_posix()}"] = path.read_bytes()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in sources.items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), content, zipfile.ZIP_DEFLATED, 9)
    return buffer.getvalue()


@cache
def agent_hash() -> str:
    """The SHA-256 of ``agent()``, by which a host's agent is known to be this one."""
    return sha256(agent()).hexdigest()
