"""What the lab remembers, and who may change it."""

import runpy
import threading
from pathlib import Path

import click.testing
import pytest
from pyinfra.api.exceptions import InventoryError

import lab.state
from lab import network, requirements
from lab.cache import cache_dir
from lab.hosts import Lab
from lab.state import Host, Options, hosts, load, locked, save
from sparkfleet.cli import main
from sparkfleet.errors import UserError

INVENTORY = Path(__file__).parents[3] / "inventory/lab.py"


@pytest.fixture(autouse=True)
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test here sees a lab of this machine."""
    monkeypatch.setattr(lab.state, "RUN", tmp_path / "run")
    monkeypatch.setenv("SPARKFLEET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SPARKFLEET_LAB", "paper")
    return tmp_path / "run"


def host(number: int = 11, name: str = "spark-01", made: bool = True) -> Host:
    return Host(lab="paper", name=name, number=number, made=made, host_key="ssh-ed25519 AAAA")


def test_a_host_is_read_as_it_was_written() -> None:
    written = save(host().model_copy(update={"options": Options(limits={"/opt": 1 << 20}, read_only=("/srv",))}))
    assert hosts("paper") == [written]


def test_a_torn_record_is_no_host() -> None:
    place = save(host()).place
    place.record.write_text(place.record.read_text()[:20])
    assert load(place) is None
    assert Lab("paper").hosts() == []


def test_a_half_made_host_is_not_shown() -> None:
    save(host(made=False))
    assert Lab("paper").hosts() == []
    assert [place.name for place in lab.state.places("paper")] == ["spark-01"]


@pytest.mark.parametrize("number", [min(network.NUMBERS), max(network.NUMBERS)])
def test_addresses_and_interface_names_fit(number: int) -> None:
    this = host(number)
    first, second = (int(address.rpartition(".")[2]) for address in this.fabric.values())
    assert 1 < first < 127 and 129 < second < 255
    assert all(len(network.cable(this, interface)) <= 15 for interface in (network.MANAGEMENT, *this.fabric))


@pytest.mark.parametrize("name", ["", "-x", "A", "a/b", "../x", "a" * 21])
def test_a_lab_name_that_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="lab name"):
        Lab(name)


def test_a_lock_holds_even_if_its_directory_is_removed_by_the_holder(run: Path) -> None:
    order: list[str] = []
    held, waited = threading.Event(), threading.Event()

    def first() -> None:
        with locked(run):
            held.set()
            waited.wait(5)
            order.append("first")
            run.rmdir()

    thread = threading.Thread(target=first)
    thread.start()
    held.wait(5)
    with locked(run, waited.set):
        order.append("second")
        assert run.is_dir()
    thread.join()
    assert order == ["first", "second"]


def test_the_cache_is_the_callers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cache_dir() == tmp_path / "cache"
    monkeypatch.delenv("SPARKFLEET_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/tmp")
    assert cache_dir() == Path("/var/tmp/sparkfleet")


def test_the_inventory_lists_the_hosts_and_nothing_else() -> None:
    save(host(12, "spark-02"))
    save(host(11, "spark-01"))
    save(host(13, "spark-03", made=False))
    names = runpy.run_path(str(INVENTORY))
    assert [name for name, _ in names["sparks"]] == ["spark-01", "spark-02"]
    assert names["sparks"][1][1]["ssh_hostname"] == "198.51.100.12"
    public = {name for name, value in names.items() if isinstance(value, list | tuple) and not name.startswith("_")}
    assert public == {"sparks"}


def test_without_a_lab_the_inventory_says_how_to_start_one() -> None:
    with pytest.raises(InventoryError, match=r"Lab 'paper' has no hosts. Start some: sudo sparkfleet lab up"):
        runpy.run_path(str(INVENTORY))


def said(*arguments: str) -> tuple[int, str]:
    result = click.testing.CliRunner().invoke(main, ["lab", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def test_list_and_down_without_hosts() -> None:
    assert said("list") == (0, "Lab 'paper' has no hosts. Start some: sparkfleet lab up\n")
    assert said("list", "--json") == (0, "[]\n")
    assert said("down") == (0, "Lab 'paper' had no hosts.\n")


def test_errors_are_words_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    save(host())
    assert said("ssh", "spark-9") == (1, "Error: Lab 'paper' has no host 'spark-9'. It has: spark-01.\n")
    assert said("up", "1", "--scenario", "odd")[1].startswith("Error: Scenario 'odd' does not exist; there are")
    assert said("up", "1", "--scenario", "good", "--scenario", "good")[1].startswith(
        "Error: 2 scenarios were given for 1"
    )
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    for command in ("up", "down"):
        assert said(command)[1] == "Error: The lab makes namespaces, mounts and interfaces: run this with sudo.\n"


def test_a_cache_that_cannot_be_made_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SPARKFLEET_CACHE", str(tmp_path / "file/cache"))
    monkeypatch.setattr(requirements, "need_root", lambda: None)
    assert "set SPARKFLEET_CACHE to a directory that can be written to" in said("up", "1")[1]


def test_missing_packages_are_named_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "need_root", lambda: None)
    monkeypatch.setattr("shutil.which", lambda command, path: None if command in ("ip", "debootstrap") else command)
    with pytest.raises(UserError, match=r"lacks: apt-get install debootstrap iproute2$"):
        requirements.check()
