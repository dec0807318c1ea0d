"""Read by pyinfra before anything else."""

import os
import signal
import socket
import sys

import paramiko
from pyinfra import config
from pyinfra.context import ctx_state

# pyinfra forbids .pyc files, so as not to litter; without those of our packages half a run is compiling them.
sys.dont_write_bytecode = False

from roles._lib import inventories  # noqa: E402  # with its .pyc file

config.REQUIRE_PYINFRA_VERSION = "~=3.10.0"  # roles/_lib leans on how this one runs facts and operations

_connect = paramiko.Transport.__init__


def _without_nagle(self, sock, *args, **kwargs):  # type: ignore[no-untyped-def]
    # paramiko leaves Nagle's algorithm on: every command then waits for a delayed ACK (40 ms).
    _connect(self, sock, *args, **kwargs)
    if isinstance(self.sock, socket.socket):  # not a ProxyCommand or a jump host's channel
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A link that is cut must end the run within half a minute: without these it waits for ever.
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)


paramiko.Transport.__init__ = _without_nagle


def _interrupted(*_: object) -> None:
    # pyinfra itself ends with status 0 on Ctrl-C, which a script would take for success.
    print("\nInterrupted: the hosts undo what was half done. Run the same command again to go on.", file=sys.stderr)
    # At once, with every connection: an exception would end one greenlet and leave the hosts' to go on.
    os._exit(130)


signal.signal(signal.SIGINT, _interrupted)

inventories.watch(ctx_state.get())
