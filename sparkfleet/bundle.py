"""The agent as one zipapp file, the same bytes from the same sources on every machine, and how to run it on a host."""

import base64
import io
import shlex
import zipfile
from functools import cache
from hashlib import sha256
from pathlib import Path

#: Where the agent lives on a host (``sparkfleet.agent.observe.HOME``).
AGENT = "/opt/sparkfleet/agent.pyz"

#: What a host answers when it cannot run the agent that was asked for.
NO_PYTHON = "sparkfleet: no python3"
OTHER_AGENT = "sparkfleet: another agent"

#: Runs an agent that comes on standard input (first line, base64) from memory; the rest stays its standard input.
_BOOT = (
    "import os,sys,base64\n"
    "code,_,rest=sys.stdin.buffer.read().partition(b'\\n')\n"
    "def memory(content):\n"
    "    f=os.memfd_create('sparkfleet',0)\n"
    "    while content: content=content[os.write(f,content):]\n"
    "    os.lseek(f,0,0)\n"
    "    return f\n"
    "os.dup2(memory(rest),0)\n"
    "path='/proc/self/fd/%d'%memory(base64.b64decode(code))\n"
    "os.execv(sys.executable,[sys.executable,'-I',path]+sys.argv[1:])\n"
)

#: Owner, and kind and mode in hexadecimal (inode(7)), of the agent and of its directory: a file of mode 644 in a
#: directory of mode 755. In words the kind would be in the host's language.
_OURS = "0 81a4,0 41ed,"

_PACKAGE = Path(__file__).resolve().parent
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest a zip file can say: no clock in the bytes

#: A zipapp has no byte code, and compiling it is half of a look at a host: what ``settle`` has compiled goes before it.
_ENTRY = """\
import sys
sys.path.insert(0, f"{directory}/compiled-{digest}-{{sys.hexversion:x}}.zip")
from sparkfleet.agent.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


@cache
def agent() -> bytes:
    """The zipapp: ``sparkfleet.agent`` and nothing else of sparkfleet."""
    sources = {"sparkfleet/__init__.py": (_PACKAGE / "__init__.py").read_bytes()}
    for path in sorted((_PACKAGE / "agent").rglob("*.py")):
        sources[f"sparkfleet/{path.relative_to(_PACKAGE).as_posix()}"] = path.read_bytes()
    digest = sha256(repr(sorted(sources.items())).encode()).hexdigest()[:16]
    sources["__main__.py"] = _ENTRY.format(directory=AGENT.rpartition("/")[0], digest=digest).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in sources.items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), content, zipfile.ZIP_DEFLATED, 9)
    return buffer.getvalue()


@cache
def agent_hash() -> str:
    """The SHA-256 of ``agent()``, by which a host's agent is known to be this one."""
    return sha256(agent()).hexdigest()


def installed_agent(verb: str) -> str:
    """A shell command that runs the host's own agent if it is this very one, and says ``OTHER_AGENT`` if not.

    It must be root's in root's directory, links not followed: whoever else could write it would become root.
    """
    same = f'[ "$(sha256sum < {AGENT} 2>/dev/null)" = "{agent_hash()}  -" ]'
    ours = f'[ "$(stat -c "%u %f" {AGENT} {AGENT.rpartition("/")[0]} 2>/dev/null | tr "\\n" ,)" = "{_OURS}" ]'
    return (
        f"command -v python3 >/dev/null || {{ printf '\\n%s\\n' {shlex.quote(NO_PYTHON)}; exit 64; }}; "
        f"if {ours} && {same}; then exec python3 -I {AGENT} {verb}; "
        f"else printf '\\n%s\\n' {shlex.quote(OTHER_AGENT)}; exit 64; fi"
    )


def carried_agent(verb: str) -> tuple[str, str]:
    """A command that runs an agent from memory, and the first line of its standard input, which is that agent."""
    return f"python3 -c {shlex.quote(_BOOT)} {verb}", base64.b64encode(agent()).decode()
