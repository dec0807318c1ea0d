"""A hub of the lab's own: what huggingface_hub asks of one, answered from memory, and it can be told to misbehave.

The answers are those of the real one as its client reads them (huggingface_hub 0.36 and 2.4: ``model_info``,
``get_hf_file_metadata``, ``http_get``): a listing with the Git hash of each file and the SHA-256 of large ones, and for
those a redirect to another origin that knows nothing of tokens.
"""

import hashlib
import http.server
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit


@dataclass
class Fault:
    """Misbehave for requests whose method and path contain ``where``, ``times`` times; then all is well again.

    ``status`` with ``headers``: answer with that. ``cut``: end the connection after so many bytes of content.
    ``short``: say and send only so many. ``spoil``: other bytes of the same length. ``commit``: claim that one.
    """

    where: str
    times: int = 1
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: int | None = None
    short: int | None = None
    spoil: bool = False
    commit: str = ""


class LocalHub:
    """A hub that runs: ``endpoint`` is its address, ``requests`` what it was asked.

    ``token``: the only one it knows; without one, anybody may read. ``rate``: bytes a second of each connection.
    """

    def __init__(self, address: str) -> None:
        self.repositories: dict[str, dict[str, dict[str, bytes]]] = {}
        self.faults: list[Fault] = []
        self.requests: list[str] = []
        self.offsets: list[tuple[str, int]] = []  # where each transfer of a file began
        self.secrets_at_cdn: list[str] = []
        self.listing: dict[str, Any] | None = None  # to be answered instead of the true one
        self.token = ""
        self.gated = False
        self.rate = 0.0
        handler = type("Handler", (_Handler,), {"hub": self})
        # Two ports, two origins: a content network is another one than the hub.
        self.servers = [http.server.ThreadingHTTPServer((address, 0), handler) for _ in range(2)]
        self.endpoint, self.content = (f"http://{address}:{server.server_port}" for server in self.servers)

    def add(self, repository: str, files: Mapping[str, bytes], commit: str = "") -> str:
        """Add a revision of a repository, the newest one; its commit."""
        commit = commit or hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
        self.repositories.setdefault(repository, {})[commit] = dict(files)
        return commit

    def fault(self, where: str) -> Fault | None:
        """The fault that the next request for ``where`` meets, if any; it is used up by that."""
        for fault in self.faults:
            if fault.times > 0 and fault.where in where:
                fault.times -= 1
                return fault
        return None


@contextmanager
def serving(address: str = "127.0.0.1") -> Iterator[LocalHub]:
    """A hub at ``address``, until the block ends."""
    hub = LocalHub(address)
    for server in hub.servers:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield hub
    finally:
        for server in hub.servers:
            server.shutdown()
            server.server_close()


def read(directory: Path) -> dict[str, bytes]:
    """The files of a model's directory, as ``LocalHub.add`` takes them."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def _is_large(name: str) -> bool:
    return name.endswith((".safetensors", ".bin", ".gguf"))


def _git(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class _Handler(http.server.BaseHTTPRequestHandler):
    hub: LocalHub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        where = f"{self.command} {path}"
        self.hub.requests.append(where)
        fault = self.hub.fault(where)
        if fault and fault.status:
            self._plain(fault.status, dict(fault.headers))
        elif path.startswith("/content/"):
            self._content(path, fault)
        elif refusal := self._refusal(path):
            self._plain(*refusal)
        elif path.startswith("/api/models/"):
            self._listing(path.removeprefix("/api/models/"), fault)
        else:
            self._resolve(path.removeprefix("/"), fault)

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        pass

    def _refusal(self, path: str) -> tuple[int, dict[str, str]] | None:
        said = self.headers.get("Authorization")
        if said and said != f"Bearer {self.hub.token}":
            return 401, {"X-Error-Message": "Invalid credentials in Authorization header"}
        if self.hub.gated and not path.startswith("/api/"):
            message = "Access to this model is restricted. You must be authenticated to access it."
            return 401, {"X-Error-Code": "GatedRepo", "X-Error-Message": message}
        if self.hub.token and not said:
            return 401, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"}
        return None

    def _find(self, repository: str, revision: str) -> tuple[str, dict[str, bytes]] | None:
        revisions = self.hub.repositories.get(repository)
        if revisions is None:
            self._plain(404, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"})
            return None
        commit = list(revisions)[-1] if revision == "main" else revision
        if commit not in revisions:
            message = f"Invalid rev id: {revision}"
            self._plain(404, {"X-Error-Code": "RevisionNotFound", "X-Error-Message": message})
            return None
        return commit, revisions[commit]

    def _listing(self, rest: str, fault: Fault | None) -> None:
        repository, _, revision = rest.partition("/revision/")
        if found := self._find(repository, revision or "main"):
            commit, files = found
            siblings: list[dict[str, Any]] = []
            for name, content in files.items():
                one = {"rfilename": name, "size": len(content), "blobId": _git(content)}
                if _is_large(name):
                    one["lfs"] = {
                        "sha256": hashlib.sha256(content).hexdigest(),
                        "size": len(content),
                        "pointerSize": 134,
                    }
                siblings.append(one)
            sha = fault.commit if fault and fault.commit else commit
            answer = self.hub.listing or {"sha": sha, "siblings": siblings}
            answer = {"id": repository, "modelId": repository, **answer}
            self._send(200, {"Content-Type": "application/json"}, json.dumps(answer).encode())

    def _resolve(self, rest: str, fault: Fault | None) -> None:
        repository, _, tail = rest.partition("/resolve/")
        revision, _, name = tail.partition("/")
        if not (found := self._find(repository, revision)):
            return
        commit, files = found
        if name not in files:
            self._plain(404, {"X-Error-Code": "EntryNotFound", "X-Error-Message": "Entry not found"})
            return
        content = files[name]
        headers = {"X-Repo-Commit": fault.commit if fault and fault.commit else commit}
        if not _is_large(name):
            self._send(200, {**headers, "ETag": f'"{_git(content)}"'}, content, fault, name)
            return
        digest = hashlib.sha256(content).hexdigest()
        headers |= {"X-Linked-Etag": f'"{digest}"', "X-Linked-Size": str(len(content))}
        headers |= {"Location": f"{self.hub.content}/content/{repository}/{commit}/{name}?signature=s3cr3t"}
        self._send(302, headers, b"")

    def _content(self, path: str, fault: Fault | None) -> None:
        owner, repository, commit, name = path.removeprefix("/content/").split("/", 3)
        if said := self.headers.get("Authorization"):
            self.hub.secrets_at_cdn.append(said)
        content = self.hub.repositories[f"{owner}/{repository}"][commit][name]
        self._send(200, {"ETag": '"content"'}, content, fault, name)

    def _plain(self, status: int, headers: dict[str, str]) -> None:
        self._send(status, headers, json.dumps({"error": headers.get("X-Error-Message", "")}).encode())

    def _send(
        self, status: int, headers: dict[str, str], content: bytes, fault: Fault | None = None, name: str = ""
    ) -> None:
        whole, start = len(content), 0
        if fault and fault.spoil:
            content = bytes(byte ^ 1 for byte in content)
        if fault and fault.short is not None:
            content = content[: fault.short]
        if name and (wanted := self.headers.get("Range")):
            start = int(wanted.removeprefix("bytes=").partition("-")[0])
            if start >= len(content):
                self._plain(416, {"Content-Range": f"bytes */{len(content)}"})
                return
            status, headers = 206, {**headers, "Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"}
            content = content[start:]
        if name and self.command == "GET":
            self.hub.offsets.append((name, start))
        self.send_response(status)
        shown = whole if self.command == "HEAD" and name else len(content)
        for key, value in {"Accept-Ranges": "bytes", **headers, "Content-Length": str(shown)}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self._body(content, fault.cut if fault else None)

    def _body(self, content: bytes, cut: int | None) -> None:
        piece = int(self.hub.rate / 20) or 256 * 1024
        try:
            for at in range(0, len(content) if cut is None else cut, piece):
                self.wfile.write(content[at : min(at + piece, len(content) if cut is None else cut)])
                if self.hub.rate:
                    self.wfile.flush()
                    time.sleep(1 / 20)
        except OSError:
            pass  # the client has gone
        if cut is not None:
            self.close_connection = True
