"""Weights from a hub: fetched by a process without root's rights, with a release's client, checked by the agent."""

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, BinaryIO

from ..errors import HostError
from ..progress import INTERVAL, Meter, say
from ..shapes import Hub, Weights
from ..wire import build, decode, encode
from .hub_shapes import EVENTS, Complete, FetchOrder, Have, HubFile, Listing, Progress, Trouble, Waiting
from .incoming import Staging, in_place, incoming, place
from .model_files import check_name

#: Seconds to go on while nothing at all comes from a hub that has answered before.
PATIENCE = 600.0

#: What the fetching process may know of the agent's environment: a site's way out.
_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "all_proxy")

_OTHERS = "bring the model in a directory (`models`), or name a Spark that has it (`models_from`)."

#: Where the agent's own code is, for the other Python to run.
_AGENT = sys.argv[0]


def fetch(model: Weights, hub: Hub, entry: dict[str, Any], token: str | None) -> dict[str, Any]:
    """Have every file of the wanted revision in place; what the receipt should say of it.

    ``entry`` is what the receipt knows of the model. Files that have the right bytes already are not fetched.
    Raises HostError when the hub, the network or the disk does not let it.
    """
    path = Path(model.path)
    staging = Staging(incoming(path), hub.user)
    staging.prepare()
    listing, wrong = _known_listing(model, hub, entry), set[str]()
    for _ in range(2):
        if wrong:
            say(f"wrong bytes came for {', '.join(sorted(wrong))}: once more")
        run = _Run(hub, staging, path, entry)
        listing, wrong = run.outcome(listing, token)
        if not wrong:
            break
    else:
        raise HostError(
            f"{hub.repository}: {', '.join(sorted(wrong))}: twice, other bytes came from {_where(hub)} than it lists. "
            f"A proxy or mirror spoils them, or this host's memory or disk: {_OTHERS}"
        )
    former = set(entry.get("files", {}))
    marks = place(path, listing, run.in_place, staging, former)
    return {
        "path": model.path,
        "files": marks,
        "repository": hub.repository,
        "asked": hub.revision,
        "commit": listing.commit,
        "listing": [asdict(file) for file in listing.files],
    }


def _known_listing(model: Weights, hub: Hub, entry: dict[str, Any]) -> Listing | None:
    """The listing, where the recipe has it or an earlier run has recorded it: the hub is not asked again."""
    if model.files:
        files = tuple(HubFile(file.name, file.size, f"sha256-{file.sha256}") for file in model.files)
        return Listing(_commit(hub, entry) or "unpinned", files)
    if entry.get("repository") != hub.repository or not _commit(hub, entry):
        return None
    if entry.get("commit") != _commit(hub, entry) or not entry.get("listing"):
        return None
    return Listing(entry["commit"], tuple(build(HubFile, one) for one in entry["listing"]))


def _commit(hub: Hub, entry: dict[str, Any]) -> str:
    """The commit to fetch; an unpinned revision stays what it was resolved to. Empty: the hub must be asked."""
    if hub.revision != "unpinned":
        return hub.revision
    return str(entry.get("commit", "")) if entry.get("repository") == hub.repository else ""


class _Run:
    """One run of the fetching process, listened to until it ends."""

    def __init__(self, hub: Hub, staging: Staging, path: Path, entry: dict[str, Any]) -> None:
        self.hub, self.staging, self.path, self.entry = hub, staging, path, entry
        self.listing: Listing | None = None
        self.trouble: Trouble | None = None
        self.in_place: set[str] = set()
        self.wrong: set[str] = set()
        self.meter: Meter | None = None

    def outcome(self, known: Listing | None, token: str | None) -> tuple[Listing, set[str]]:
        """The listing, and the names of files that came with wrong bytes.

        Raises HostError with what to do when the process could not have all.
        """
        hub = self.hub
        revision, files = (known.commit, known.files) if known else (hub.revision, ())
        order = FetchOrder(
            repository=hub.repository,
            revision=revision,
            endpoint=hub.endpoint,
            directory=str(self.staging.partial),
            files=files,
            token=token,
            interval=INTERVAL,
            patience=PATIENCE,
        )
        with tempfile.TemporaryFile() as noise:
            process = self._start(noise)
            assert process.stdin and process.stdout
            try:
                self._tell(process.stdin, order)
                for line in process.stdout:
                    self._hear(line, process.stdin, known)
            finally:
                process.stdin.close()  # it ends then, if it has not
                code = process.wait()
            if self.trouble:
                raise HostError(_explained(self.trouble, hub))
            if code != 0 or self.listing is None:
                noise.seek(0)
                said = " ".join(noise.read().decode("utf-8", "replace").split())[-400:]
                raise HostError(f"{hub.repository}: the fetching process ended with status {code}: {said}.")
        return self.listing, self.wrong

    def _tell(self, channel: IO[str], what: object) -> None:
        channel.write(encode(what) + "\n")
        channel.flush()

    def _start(self, noise: BinaryIO) -> "subprocess.Popen[str]":
        user = self.staging.user
        others = os.geteuid() != user.pw_uid
        identity: dict[str, Any] = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if others else {}
        return subprocess.Popen(
            (self.hub.python, "-I", "-B", _AGENT, "fetch"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=noise,
            text=True,
            cwd=self.staging.partial,
            env=_environment(self.hub, self.staging.partial),
            **identity,
        )

    def _hear(self, line: str, answer: IO[str], known: Listing | None) -> None:
        kind, _, content = line.partition(" ")
        event: object = decode(EVENTS[kind], content)
        if isinstance(event, Listing):
            self.listing = _checked(event, self.hub, known)
            self.in_place = in_place(self.path, event, self.entry)
            missing = {file.key for file in event.files if file.name not in self.in_place}
            whole = self.staging.whole()
            self._tell(
                answer, Have(tuple(file.key for file in event.files if file.key in whole or file.key not in missing))
            )
        elif isinstance(event, Complete):
            self._take(event.key)
        elif isinstance(event, Progress):
            self._say(event)
        elif isinstance(event, Waiting):
            say(f"{event.why}; again in {event.seconds:.0f} s")
        elif isinstance(event, Trouble):
            self.trouble = event

    def _take(self, key: str) -> None:
        assert self.listing
        file = next(one for one in self.listing.files if one.key == key)
        if not self.staging.take(file):
            self.wrong.add(file.name)

    def _say(self, now: Progress) -> None:
        assert self.listing
        if self.meter is None:
            self.meter = Meter(len(self.listing.files), sum(file.size for file in self.listing.files))
            self.meter.done_files, self.meter.done = now.files, now.bytes
            say(f"fetching {self.hub.repository} at {self.listing.commit[:12]}: {self.meter} are here")
        else:
            self.meter.done_files, self.meter.done = now.files, now.bytes
            self.meter.tell()


def _checked(listing: Listing, hub: Hub, known: Listing | None) -> Listing:
    if known and (listing.files != known.files or known.commit not in ("unpinned", listing.commit)):
        raise HostError(f"{hub.repository}: the fetching process is about other files than it was told. Run again.")
    for file in listing.files:
        check_name(file.name)
        if not re.fullmatch(r"sha256-[0-9a-f]{64}|git-[0-9a-f]{40}", file.key):
            raise HostError(f"{hub.repository}: {file.name}: {_where(hub)} lists it with the hash {file.key!r:.80}.")
    return listing


def _environment(hub: Hub, directory: Path) -> dict[str, str]:
    ours = {
        "PATH": "/usr/bin:/bin",
        "LC_ALL": "C.UTF-8",
        "HOME": str(directory),
        "HF_HOME": str(directory / ".hf"),  # whatever the client keeps: on the same disk, and gone with the rest
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
        "HF_HUB_VERBOSITY": "error",
    }
    endpoint = {"HF_ENDPOINT": hub.endpoint} if hub.endpoint else {}
    return ours | endpoint | {name: os.environ[name] for name in _PROXIES if name in os.environ}


def _where(hub: Hub) -> str:
    return hub.endpoint or "the hub"


def _explained(trouble: Trouble, hub: Hub) -> str:
    """A paragraph: what was wanted, what was found, the remedy."""
    page = f"{hub.endpoint.rstrip('/')}/{hub.repository}" if hub.endpoint else f"the page of {hub.repository}"
    thing = hub.repository if trouble.name == hub.repository else f"{hub.repository}: {trouble.name}"
    token = "`hub_token` (a file on the control machine) or HF_TOKEN (in the environment of the deploy)"
    again = "What has come is kept: run again to go on from there."
    when = f" It says: again in {trouble.retry_after:.0f} s." if trouble.retry_after else ""
    remedies = {
        "gated": f"the model is gated: accept its licence at {page}, with the account that the token is of, and set "
        f"{token}.",
        "token": f"the hub does not know the token. Make a new one (read access is enough) and set {token}.",
        "denied": f"the hub refuses. Set {token}; a token that is set may lack the right to read this repository.",
        "repository": f"the hub shows no such repository. Correct `model.repository`; if it is private, set {token}.",
        "revision": f"the hub has no revision {hub.revision}. Correct `model.revision` (`sparkfleet pin` writes the "
        f"current one).",
        "entry": "the hub does not have this file in this revision. Correct the recipe's files or revision.",
        "busy": f"the hub asks to come more slowly.{when} A token ({token}) raises its limits. {again}",
        "hub": f"the hub fails. {again} Or {_OTHERS}",
        "network": f"no connection to {_where(hub)}. Mend the network, or set `hub` to a mirror. Or {_OTHERS} {again}",
        "full": f"free room below the models directory. {again}",
        "truncated": f"the file is shorter than the hub lists it. {again} Or {_OTHERS}",
        "changed": "the hub or mirror answers with something else than was asked for. Use another `hub`, or pin "
        "another revision. Nothing was put in place.",
        "not-a-hub": "what answers there is no hub: a proxy's page, perhaps. Correct `hub`.",
        "files": "",
        "other": again,
    }
    return f"{thing}: {trouble.detail}; {remedies[trouble.kind]}".rstrip("; ")
