"""Where this machine's apt gets its distribution from: the one place the lab's image may come from."""

import re
from dataclasses import dataclass
from pathlib import Path

from lab.shell import call
from sparkfleet.errors import UserError

#: what a lab host runs: DGX OS is Ubuntu noble; bookworm is the Debian whose systemd boots on cgroup v1 too
SUITES = {"debian": "bookworm", "ubuntu": "noble"}
PYTHONS = {"bookworm": "3.11", "noble": "3.12"}


@dataclass(frozen=True)
class Mirror:
    suite: str
    uri: str
    keyring: Path


def distribution(os_release: str) -> tuple[str, str]:
    """Distribution (``debian`` or ``ubuntu``) and code name of this machine, from ``/etc/os-release``."""
    fields = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', os_release, re.MULTILINE))
    kin = [fields.get("ID", ""), *fields.get("ID_LIKE", "").split()]
    for name in ("ubuntu", "debian"):
        if name in kin:
            return name, fields.get("UBUNTU_CODENAME") or fields.get("VERSION_CODENAME", "")
    raise UserError(
        f"The lab builds its hosts with debootstrap from this machine's apt sources, which needs Debian or "
        f"Ubuntu; this is {fields.get('PRETTY_NAME', 'neither')}. Run the lab on one of those."
    )


def suite() -> str:
    """The suite a lab host of this machine runs."""
    return SUITES[_this_machine()[0]]


def python() -> str:
    """Version (``3.11``) of the Python of a lab host of this machine."""
    return PYTHONS[suite()]


def mirrors() -> list[Mirror]:
    """Candidates, most likely first. debootstrap checks the signature, so a wrong one cannot be used."""
    name, codename = _this_machine()
    form = "|".join(f"$({f})" for f in ("CREATED_BY", "REPO_URI", "RELEASE", "COMPONENT", "ORIGIN", "SOURCESENTRY"))
    # --no-release-info: also before the first `apt-get update`; ORIGIN is then empty or unexpanded
    listed = call(["apt-get", "indextargets", "--format", form])
    listed += call(["apt-get", "indextargets", "--no-release-info", "--format", form])
    found = candidates(listed, name, codename)
    if not found:
        raise UserError(
            f"No apt source of this machine offers {name}'s own packages (component main of {codename}). "
            f"The lab builds its hosts from there: add the distribution's source to /etc/apt and retry."
        )
    return [Mirror(SUITES[name], resolve(uri), signed_by(entry) or _default_keyring(name)) for uri, entry in found]


def candidates(listed: str, name: str, codename: str) -> list[tuple[str, str]]:
    """(uri, source entry) of the distribution's own archive among lines of ``apt-get indextargets``.

    A third party may use the same suite and component names; its Origin, where apt knows it, or the file it
    is in, tells it from the distribution.
    """
    own: dict[tuple[str, str], int] = {}
    for line in listed.splitlines():
        kind, uri, release, component, origin, entry = line.split("|")
        if (kind, release, component) != ("Packages", codename, "main"):
            continue
        known = "$" not in origin and origin != ""
        if known and origin.lower() != name:
            own[uri, entry] = -1
            continue
        usual = Path(entry.rpartition(":")[0]).name in ("sources.list", f"{name}.sources")
        rank = 2 if known else int(usual)
        own[uri, entry] = max(rank, own.get((uri, entry), rank)) if own.get((uri, entry)) != -1 else -1
    return [k for k, rank in sorted(own.items(), key=lambda item: -item[1]) if rank >= 0]


def resolve(uri: str) -> str:
    """What debootstrap can use for apt's ``mirror+file:`` sources: the first web address in that file."""
    if uri.startswith("mirror+file:"):
        text = Path(uri.removeprefix("mirror+file:").rstrip("/")).read_text()
        for word in text.split():
            if word.startswith(("http:", "https:")):
                return word
    return uri


def signed_by(entry: str) -> Path | None:
    """Keyring named by a source entry (``FILE:N``, the N-th stanza or line), if it names a file."""
    path, _, number = entry.rpartition(":")
    try:
        text = Path(path).read_text()
    except OSError:
        return None
    if path.endswith(".sources"):
        stanzas = [s for s in re.split(r"\n\s*\n", text) if re.search(r"(?mi)^types:", s)]
        text = stanzas[int(number) - 1] if 0 < int(number) <= len(stanzas) else ""
        named = re.search(r"(?mi)^signed-by:\s*(/\S+)", text)
    else:
        lines = text.splitlines()
        named = re.search(r"signed-by=(/[^\s\],]+)", lines[int(number) - 1] if int(number) <= len(lines) else "")
    return Path(named[1]) if named and Path(named[1]).is_file() else None


def _this_machine() -> tuple[str, str]:
    return distribution(Path("/etc/os-release").read_text())


def _default_keyring(name: str) -> Path:
    keyring = Path(f"/usr/share/keyrings/{name}-archive-keyring.gpg")
    if not keyring.is_file():
        raise UserError(f"{keyring} is missing, so packages cannot be checked: apt-get install {name}-keyring.")
    return keyring
