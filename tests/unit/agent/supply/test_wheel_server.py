"""Wheels are handed out to hosts of the run that know its token, and nothing else is; real sockets on loopback."""

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import pytest

from sparkfleet.agent import wire
from sparkfleet.agent.errors import HostError
from sparkfleet.agent.releases.lock_file import Pin
from sparkfleet.agent.shapes import ServeOrder
from sparkfleet.agent.supply.wheel_server import WheelServer, offered, plain

WHEEL = "one-1-py3-none-any.whl"
BYTES = bytes(range(256)) * 20


@contextmanager
def running(server: WheelServer) -> Iterator[None]:
    server.start()
    yield
    server.shutdown()
    server.server_close()


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / WHEEL
    path.write_bytes(BYTES)
    (tmp_path / "secret").write_text("not a wheel")
    return path


@pytest.fixture
def server(wheel: Path) -> Iterator[WheelServer]:
    server = WheelServer("127.0.0.1", ["127.0.0.1"], "token", {WHEEL: wheel})
    with running(server):
        yield server


def ask(server: WheelServer, path: str, verb: str = "GET", **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.request(verb, path, headers=headers)
    response = connection.getresponse()
    return response.status, response.read()


def test_a_wheel_and_the_list_of_them(server: WheelServer) -> None:
    assert ask(server, f"/token/{WHEEL}") == (200, BYTES)
    status, content = ask(server, "/token/")
    assert (status, json.loads(content)) == (200, {WHEEL: len(BYTES)})
    assert server.sent == {"127.0.0.1": len(BYTES)}


@pytest.mark.parametrize("path", ["/", f"/{WHEEL}", f"/other/{WHEEL}", "/tokem/", "//"])
def test_who_does_not_know_the_token_gets_nothing(server: WheelServer, path: str) -> None:
    status, content = ask(server, path)
    assert status == 404 and BYTES not in content and WHEEL.encode() not in content


@pytest.mark.parametrize("name", ["secret", "../secret", f"./{WHEEL}", f"%2e/{WHEEL}", "two-1-py3-none-any.whl"])
def test_only_files_that_were_named_are_served(server: WheelServer, name: str) -> None:
    assert ask(server, f"/token/{name}")[0] == 404


@pytest.mark.parametrize("verb", ["HEAD", "POST", "PUT", "DELETE"])
def test_only_get(server: WheelServer, verb: str) -> None:
    assert ask(server, f"/token/{WHEEL}", verb)[0] == 501


def test_a_peer_that_is_no_host_of_the_run_is_hung_up_on(wheel: Path) -> None:
    server = WheelServer("127.0.0.1", ["192.0.2.7"], "token", {WHEEL: wheel})
    with running(server), pytest.raises((ConnectionError, http.client.HTTPException)):
        ask(server, f"/token/{WHEEL}")


@pytest.mark.parametrize("start", [1, 100, len(BYTES) - 1])
def test_the_rest_of_a_wheel(server: WheelServer, start: int) -> None:
    assert ask(server, f"/token/{WHEEL}", Range=f"bytes={start}-") == (206, BYTES[start:])


def test_a_range_behind_its_end_is_refused(server: WheelServer) -> None:
    assert ask(server, f"/token/{WHEEL}", Range=f"bytes={len(BYTES)}-")[0] == 416


def test_several_wheels_over_one_connection(server: WheelServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    for _ in range(3):
        connection.request("GET", f"/token/{WHEEL}")
        assert connection.getresponse().read() == BYTES


def test_a_wheel_that_was_removed_since_is_not_there(server: WheelServer, wheel: Path) -> None:
    wheel.unlink()
    assert ask(server, f"/token/{WHEEL}")[0] == 404
    assert ask(server, "/token/") == (200, b"{}")


def test_an_address_that_is_not_this_machines_is_said(wheel: Path) -> None:
    with pytest.raises(HostError, match=r"cannot be handed out on 192\.0\.2\.7"):
        WheelServer("192.0.2.7", [], "token", {WHEEL: wheel})


def test_of_several_builds_of_a_release_the_lock_decides(tmp_path: Path) -> None:
    for tag in ("cp311-cp311-linux_x", "cp312-cp312-linux_x"):
        (tmp_path / f"one-1-{tag}.whl").write_text(tag)
    (tmp_path / "other-1-py3-none-any.whl").touch()
    wanted = frozenset([sha256(b"cp312-cp312-linux_x").hexdigest()])
    assert list(offered([Pin("one", "1", wanted), Pin("two", "1", wanted)], tmp_path)) == [
        "one-1-cp312-cp312-linux_x.whl"
    ]
    with pytest.raises(HostError, match="the wheelhouse is not there"):
        offered([], tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("address", "written"),
    [("198.51.100.7", "198.51.100.7"), ("::ffff:198.51.100.7", "198.51.100.7"), ("fe80::1%eth0", "fe80::1")],
)
def test_an_address_is_compared_as_one_however_it_is_written(address: str, written: str) -> None:
    assert plain(address) == written


SERVE = """
import sys
from pathlib import Path
from sparkfleet.agent.supply import wheel_server
wheel_server._RUN = Path(sys.argv[1])
def write(path, text, mode):
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").rename(path)
wheel_server.write = write
from sparkfleet.agent.__main__ import main
sys.exit(main([sys.argv[2]]))
"""


def agent(verb: str, run: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SERVE, str(run), verb]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_host_serves_until_nobody_listens_any_more(wheel: Path, tmp_path: Path) -> None:
    lock = f"one==1 --hash=sha256:{sha256(BYTES).hexdigest()}\n"
    order = ServeOrder(str(tmp_path), lock, "1", ("a" * 64,), "127.0.0.1", ("127.0.0.1",), "t0")
    run = tmp_path / "run"
    serving, asking = agent("serve", run), agent("served", run)
    assert serving.stdin and serving.stdout
    serving.stdin.write(wire.encode(order))
    serving.stdin.close()
    said, errors = asking.communicate("t0\n", timeout=60)
    assert asking.returncode == 0, errors
    port = int(said.rpartition(" ")[2])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", f"/t0/{WHEEL}")
    assert connection.getresponse().read() == BYTES
    serving.stdout.close()  # as when the connection of the run is gone
    assert serving.wait(timeout=30) == 75
    assert list(run.iterdir()) == []
    with pytest.raises(ConnectionRefusedError):
        http.client.HTTPConnection("127.0.0.1", port, timeout=10).request("GET", "/t0/")
