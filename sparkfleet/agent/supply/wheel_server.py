"""Hand out wheels or a model to other hosts while a run lasts: from the control machine, or from one host.

Whoever asks checks every byte against its lock, so nobody has to trust this server. It still serves as little as it
can: on one address, to the hosts of the run, to who knows the token of the run, the wheels of one lock, by GET.
"""

import contextlib
import hashlib
import hmac
import ipaddress
import json
import os
import re
import socketserver
import threading
import time
from collections.abc import Iterable, Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socket import AF_INET, AF_INET6
from typing import Any

from .. import lifeline
from ..errors import HostError
from ..models import peer
from ..paths import sha256, write
from ..releases.lock_file import Pin, parse, wheels_by_release
from ..shapes import ServeModelOrder, ServeOrder

CHUNK = 1024 * 1024
PATIENCE = 60.0
"""Seconds that a peer may be silent in the middle of a request."""


def offered(pins: Iterable[Pin], directory: Path) -> dict[str, Path]:
    """The wheels in ``directory`` that are of ``pins``, by file name. Of several for one pin, those that it wants.

    Raises HostError when the directory is not there.
    """
    there = wheels_by_release(directory)
    found: dict[str, Path] = {}
    for pin in pins:
        candidates = there.get((pin.name, pin.version), [])
        if len(candidates) > 1:
            candidates = [path for path in candidates if sha256(path) in pin.hashes]
        found |= {path.name: path for path in candidates}
    return found


class WheelServer(socketserver.ThreadingTCPServer):
    """Serves ``wheels`` at ``/TOKEN/FILE``, and their sizes as JSON at ``/TOKEN/``, from ``start`` on."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: str, peers: Iterable[str], token: str, wheels: Mapping[str, Path]) -> None:
        """Take a free port of ``address``. Raises HostError when this machine does not have that address."""
        self.address_family = AF_INET6 if ":" in address else AF_INET
        self.peers = frozenset(map(plain, peers))
        self.token, self.wheels = token, wheels
        self.sent: dict[str, int] = {}
        self._counting = threading.Lock()
        try:
            super().__init__((address, 0), _Handler)
        except OSError as error:
            raise HostError(
                f"wheels cannot be handed out on {address}: {error.strerror or error}. It is the address that this "
                f"machine is reached at; if it is translated on the way, use `wheelhouse` on each host."
            ) from None

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def start(self) -> None:
        """Serve from a thread of its own that ends with the process."""
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Only hosts of this run: others are hung up on."""
        return plain(client_address[0]) in self.peers

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A peer that goes away in the middle comes again."""

    def count(self, peer: str, size: int) -> None:
        """Remember how many bytes of wheels went to ``peer``."""
        with self._counting:
            self.sent[peer] = self.sent.get(peer, 0) + size


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = PATIENCE
    server: WheelServer

    def do_GET(self) -> None:
        _, token, name = [*self.path.split("/", 2), "", ""][:3]
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            self.send_error(404)
        elif not name:
            self._list()
        elif name in self.server.wheels:
            self._file(self.server.wheels[name])
        else:
            self.send_error(404)

    def _list(self) -> None:
        sizes = {}
        for name, path in self.server.wheels.items():
            with contextlib.suppress(OSError):  # somebody removed it since
                sizes[name] = path.stat().st_size
        content = json.dumps(sizes).encode()
        self._head(200, len(content))
        self.wfile.write(content)

    def _file(self, path: Path) -> None:
        try:
            file = path.open("rb")
        except OSError:
            self.send_error(404)
            return
        with file:
            size = os.fstat(file.fileno()).st_size
            asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
            start = int(asked[1]) if asked else 0
            if asked and start >= size:
                self.send_error(416)
                return
            self._head(206 if asked else 200, size - start)
            file.seek(start)
            left = size - start
            while left and (chunk := file.read(min(CHUNK, left))):
                self.wfile.write(chunk)
                self.server.count(plain(self.client_address[0]), len(chunk))
                left -= len(chunk)
            self.close_connection = self.close_connection or left > 0  # it was cut short under our hands

    def _head(self, status: int, size: int) -> None:
        self.send_response_only(status)
        self.send_header("Content-Length", str(size))
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the path holds the token."""


def plain(address: str) -> str:
    """An IP address in one way of writing; an IPv4 one also where it came by an IPv6 socket."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    return str(getattr(parsed, "ipv4_mapped", None) or parsed)


# --- on a host, for the others -----------------------------------------------------------------------------------

_RUN = Path("/run/sparkfleet-wheels")


def serve(order: ServeOrder) -> None:
    """Hand out wheels until this process is ended, as ``lifeline`` does when the run that started it is over."""
    pins = (*parse(order.lock), Pin("uv", order.uv, frozenset(order.uv_hashes)))
    _hand_out(WheelServer(order.address, order.peers, order.token, offered(pins, Path(order.directory))))


def serve_model(order: ServeModelOrder) -> None:
    """Hand out the files of a model, likewise."""
    _RUN.mkdir(mode=0o700, exist_ok=True)
    _hand_out(WheelServer(order.address, order.peers, order.token, peer.offered(order.model, _RUN)))


def _hand_out(server: WheelServer) -> None:
    note = _note(server.token)
    lifeline.on_end(lambda: note.unlink(missing_ok=True))
    server.start()
    note.parent.mkdir(mode=0o700, exist_ok=True)
    write(note, str(server.port), 0o600)
    threading.Event().wait()


def port_of(token: str) -> int:
    """The port of the process on this host that serves ``token``; it may have only just been started.

    Raises HostError when there is none.
    """
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with contextlib.suppress(FileNotFoundError):
            return int(_note(token).read_text(encoding="ascii"))
        time.sleep(0.05)
    raise HostError(f"wheels are not handed out within {PATIENCE:.0f} s.")


def _note(token: str) -> Path:
    return _RUN / hashlib.sha256(token.encode()).hexdigest()[:32]
