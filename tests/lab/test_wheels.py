"""Wheels come to hosts from an index, from the control machine and from another Spark; whoever dies in the middle."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from lab import mirror, wheelhouse
from lab.hosts import Lab
from lab.network import cable
from lab.supplies import ON_HOST
from tests.lab.conftest import HOME, LAB, Outcome, Spark, pyinfra

pytestmark = pytest.mark.long

ONLY_WHEELS = "tests/lab/only_wheels.py"
WHEELS = "/var/lib/sparkfleet/wheels"
LARGE = "torch"


@pytest.fixture(scope="module")
def pair(lab: Lab, sparks: list[Spark]) -> Iterator[list[Spark]]:
    """Two hosts more, fresh."""
    hosts = lab.up(4)[2:]
    yield [Spark(lab, host) for host in hosts]
    lab.down([host.name for host in hosts])


@pytest.fixture(autouse=True)
def _no_wheels(pair: list[Spark]) -> None:
    for spark in pair:
        spark.sh(f"rm -rf {WHEELS}")


@pytest.fixture(scope="module")
def house() -> Path:
    """The lab's wheelhouse on this machine."""
    return wheelhouse.default_path(mirror.python())


def large(house: Path) -> str:
    return next(house.glob(f"{LARGE}-*.whl")).name


def lock_of(house: Path, tmp_path: Path, *names: str) -> Path:
    """A lock of a few pins of the lab's."""
    text = (house / wheelhouse.COMPLETE).read_text()
    path = tmp_path / "few.lock"
    path.write_text("".join(re.findall(rf"^(?:{'|'.join(names)})==\S+ \\\n(?:    .*\n)+", text, re.MULTILINE)))
    return path


def arguments(pair: list[Spark], lock: Path, start: str, directory: object, deploy: str = ONLY_WHEELS) -> list[str]:
    limits = [part for spark in pair for part in ("--limit", spark.name)]
    data = (f"lock={lock}", f"wheelhouse_from={start}", f"wheelhouse={directory}")
    return [deploy, *limits, *(part for one in data for part in ("--data", one))]


def bring(pair: list[Spark], lock: Path, start: str, directory: object) -> Outcome:
    return pyinfra(*arguments(pair, lock, start, directory))


def begin(pair: list[Spark], lock: Path, start: str, directory: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "pyinfra", "-y", "inventory/lab.py", *arguments(pair, lock, start, directory)]
    return subprocess.Popen(
        command,
        cwd=HOME,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "SPARKFLEET_LAB": LAB},
    )


def part(lab: Lab, spark: Spark) -> int:
    """Bytes that the host has of the large wheel, as long as it is not whole."""
    parts = (lab.root(spark.host) / WHEELS[1:]).glob(f".{LARGE}-*.part")
    return sum(path.stat().st_size for path in parts)


def wait_for(what: Callable[[], object], run: subprocess.Popen[str] | None = None) -> None:
    deadline = time.monotonic() + 120
    while not what():
        assert time.monotonic() < deadline, "waited in vain"
        assert run is None or run.poll() is None, run.communicate()[0] if run else ""
        time.sleep(0.005)


def wheels(spark: Spark) -> list[str]:
    return [name.split("-")[0] for name in spark.sh(f"ls {WHEELS}").split()]


def listening(spark: Spark) -> str:
    return spark.sh("pgrep -f 'agent[.]pyz serv' || true")


def carried(spark: Spark, direction: str) -> int:
    """Bytes that a host's cable has carried: ``tx`` to the host, ``rx`` from it."""
    return int(Path(f"/sys/class/net/{cable(spark.host)}/statistics/{direction}_bytes").read_text())


class Index(ThreadingHTTPServer):
    """What stands for the internet: a package index on loopback that wants a password and counts what it gives."""

    def __init__(self, house: Path) -> None:
        self.house, self.given = house, Counter[str]()
        super().__init__(("127.0.0.1", 0), _Pages)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Pages(BaseHTTPRequestHandler):
    server: Index

    def do_GET(self) -> None:
        kind, name = self.path.strip("/").split("/")
        if self.headers.get("Authorization") != "Basic YW5uOnMzY3JldC13b3Jk":  # ann:s3cret-word
            self.send_error(401)
            return
        if kind == "simple":
            pattern = f"{name.replace('-', '_')}-*.whl"
            content = "".join(
                f'<a href="/wheels/{path.name}">{path.name}</a>' for path in self.server.house.glob(pattern)
            )
            self._give(content.encode(), "text/html")
        else:
            self.server.given[name.split("-")[0]] += 1
            self._give((self.server.house / name).read_bytes(), "application/octet-stream")

    def _give(self, content: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_wheel_leaves_the_index_once_and_this_machine_once_a_host(
    pair: list[Spark], house: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = Index(house)
    monkeypatch.setenv("PIP_INDEX_URL", f"http://ann:s3cret-word@127.0.0.1:{index.server_port}/simple/")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    lock, dest = lock_of(house, tmp_path, "certifi", "idna", "transformers"), tmp_path / "fetched"
    dry = pyinfra(*arguments(pair, lock, "index", dest), "--dry", json_output=False)
    assert dry.status == 0 and not index.given and not dest.exists()
    before = [carried(spark, "tx") for spark in pair]
    run = bring(pair, lock, "index", dest)
    assert run.status == 0, run.said
    everything = {"certifi": 1, "idna": 1, "transformers": 1, "uv": 1}
    assert index.given == everything
    size = sum(path.stat().st_size for path in dest.glob("*.whl"))
    for spark, earlier in zip(pair, before, strict=True):
        assert set(wheels(spark)) == set(everything)
        assert size < carried(spark, "tx") - earlier < 1.2 * size
    again = bring(pair, lock, "index", dest)
    assert again.totals["success"] == 0
    pair[0].sh(f"rm {WHEELS}/idna-*")
    mended = bring(pair, lock, "index", dest)
    assert mended.totals["success"] == 1 and "1 wheels to come" in mended.said
    assert index.given == everything
    for outcome in (dry, run, again, mended):
        assert "s3cret" not in outcome.said and "s3cret" not in str(outcome.results)
    index.shutdown()


def test_a_run_killed_in_the_middle_is_taken_up_where_it_was(
    lab: Lab, pair: list[Spark], house: Path, tmp_path: Path
) -> None:
    lock = lock_of(house, tmp_path, LARGE, "certifi")
    one = pair[:1]
    run = begin(one, lock, "control", house)
    wait_for(lambda: part(lab, one[0]) > 1_000_000, run)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    wait_for(lambda: not one[0].sh("pgrep -f 'agent[.]pyz' || true"))
    had = part(lab, one[0])
    assert had > 1_000_000
    final = bring(one, lock, "control", house)
    assert final.status == 0, final.said
    assert f"{had / 1e6:.1f} MB of them already here" in final.said
    assert sorted(wheels(one[0])) == ["certifi", LARGE, "uv"]


def test_a_spark_hands_its_wheels_to_another_and_is_taken_up_after_it_died(
    lab: Lab, pair: list[Spark], house: Path, tmp_path: Path
) -> None:
    lock = lock_of(house, tmp_path, LARGE, "certifi")
    giver, taker = pair
    there = f"{ON_HOST}/wheelhouse/{house.name}"
    run = begin(pair, lock, giver.name, there)
    wait_for(lambda: part(lab, taker) > 1_000_000, run)
    giver.sh("pkill -KILL -f 'agent[.]pyz serve'")
    said, _ = run.communicate(timeout=300)
    assert run.returncode != 0
    assert f"wheels: {giver.name} hands them out at {giver.host.address}" in said and "does not answer" in said
    assert f"{giver.name}  failed" not in said, "the others go on"
    had, before = part(lab, taker), carried(giver, "rx")
    final = bring(pair, lock, giver.name, there)
    assert final.status == 0, final.said
    assert f"{had / 1e6:.1f} MB of them already here" in final.said
    assert sorted(wheels(taker)) == ["certifi", LARGE, "uv"]
    assert carried(giver, "rx") - before > (house / large(house)).stat().st_size - had, "they came from there"
    assert not listening(giver)
    assert giver.sh("ls -A /run/sparkfleet-wheels").count("\n") == 0, "at most the one that was killed left its note"


def test_a_giver_outside_the_run_is_said_before_anything_is_changed(
    pair: list[Spark], house: Path, tmp_path: Path
) -> None:
    run = bring(pair[1:], lock_of(house, tmp_path, "certifi"), pair[0].name, "/srv/wheels")
    assert run.status != 0
    assert f"come from {pair[0].name} (`wheelhouse_from`), which is not part of this run" in run.said
    assert f"{pair[1].name}  blocked, nothing was changed" in run.said


def test_a_giver_that_has_not_all_is_told_of_all_that_is_missing(
    pair: list[Spark], house: Path, tmp_path: Path
) -> None:
    pair[0].sh("mkdir -p /srv/wheels && rm -f /srv/wheels/*")
    run = bring(pair, lock_of(house, tmp_path, "certifi", "idna"), pair[0].name, "/srv/wheels")
    assert run.status != 0
    assert re.search(rf"the wheelhouse of {pair[0].name} lacks certifi==\S+, idna==\S+, uv==", run.said), run.said


def test_a_release_is_built_from_what_this_machine_hands_out(pair: list[Spark], house: Path) -> None:
    one = pair[:1]
    order = arguments(one, house / wheelhouse.COMPLETE, "control", house, "tests/lab/only_release.py")
    run = pyinfra(*order)
    assert run.status == 0, run.said
    assert one[0].sh("cat /opt/sparkfleet/releases/vllm-*/release.json | grep -c '\"sealed\": true'") == "1"
    again = pyinfra(*order)
    assert again.status == 0 and again.totals["success"] == 0
