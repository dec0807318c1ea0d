"""An inventory that cannot be meant ends a run before any host is connected to."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyinfra.api import Inventory

from sparkfleet.cli import main

with pytest.MonkeyPatch.context() as patch:
    # pyinfra's command line does this to the whole process, which other tests have to live in.
    patch.setattr("gevent.monkey.patch_all", lambda: None)
    from roles._lib import report, unreached
    from roles._lib.inventories import Refused, check_choice, check_lists

HOME = Path(__file__).resolve().parents[3]
NOWHERE = '{"recipes": [], "ssh_hostname": "127.0.0.1", "ssh_port": 1}'


FLEET = Inventory((["a", "b", "c"], {}), sparks=(["a", "b", "c"], {}), left=(["a"], {}), empty=([], {}))


def pyinfra(*arguments: str) -> tuple[int, str]:
    """How a run of the real pyinfra ends, and what it says."""
    command = (sys.executable, "-m", "pyinfra", "-y", *arguments)
    done = subprocess.run(command, cwd=HOME, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def refused(*arguments: str) -> str:
    """What is said of a run of the real pyinfra that ends before any host is connected to."""
    status, said = pyinfra(*arguments)
    assert status == 1 and "Connecting to hosts" not in said and "Traceback" not in said, said
    return said.partition("--> pyinfra error: ")[2].strip()


def choose(left: list[str] | None, name: str, fleet: Inventory = FLEET, **patterns: list[str]) -> None:
    hosts = None if left is None else [fleet.get_host(one) for one in left]
    check_choice(fleet, hosts, inventory=name, **{"limit": [], "exclude": [], **patterns})


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    path = tmp_path / "fleet.py"
    path.write_text(f'sparks = [("a", {NOWHERE}), ("b", {NOWHERE}), "@local"]\nleft = ["a", "@local"]\n')
    return path


def test_a_run_with_a_host_twice_in_one_list(inventory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inventory.write_text(f'sparks = [("a", {NOWHERE}), "b", ("a", {{"recipes": []}})]')
    expected = (
        f"{inventory}: a is named more than once in the list `sparks`. Only the last entry would count, whatever the "
        f"others say: leave one of each, or give another machine its own name."
    )
    assert refused(str(inventory), "deploy.py") == expected
    monkeypatch.chdir(HOME)
    shown = CliRunner().invoke(main, ["plan", str(inventory)])
    assert shown.exit_code == 2 and expected in shown.output and "cannot read" not in shown.output


@pytest.mark.parametrize(
    ("lists", "where"),
    [
        ({"all": ["a", "b"], "sparks": ["a", ("a", {"recipes": []})]}, "sparks"),
        ({"all": ["a", "b", "a"], "fleet": ["a", "b", "a"]}, "all"),
        ({"all": ["a"], "sparks": [("@local", {}), "a", "@local", "a", "a"]}, "sparks"),
    ],
)
def test_a_host_twice_in_one_list(lists: dict[str, list[Any]], where: str) -> None:
    with pytest.raises(Refused, match=f"a is named more than once in the list `{where}`") as error:
        check_lists("fleet.py", lists)
    assert str(error.value).count("a is named") == 1


def test_a_host_in_two_lists(inventory: Path) -> None:
    """Of a connector pyinfra itself names each list twice."""
    status, said = pyinfra(str(inventory), "debug-inventory", "--limit", "left")
    assert status == 0, said


def test_a_run_with_a_misspelt_inventory() -> None:
    assert refused("inventory/spark.py", "deploy.py").startswith("inventory/spark.py: there is no such file. There are")


def test_a_run_with_a_limit_without_effect(inventory: Path) -> None:
    assert refused(str(inventory), "deploy.py", "--limit", "spark-9") == (
        f"--limit spark-9: {inventory} has no such host and no such list. It has the hosts a, b, @local and the "
        f"lists sparks, left, fleet, @local: name one of them."
    )


@pytest.mark.parametrize("fleet", [FLEET, Inventory.empty()])
@pytest.mark.parametrize("name", ["inventory/spark.py", "spark.py", "nowhere/sparks.py"])
def test_a_misspelt_inventory(name: str, fleet: Inventory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it is taken for a host: its name may resolve, and has an address with --data."""
    monkeypatch.chdir(HOME)
    with pytest.raises(Refused, match=f"^{name}: there is no such file.*inventory/sparks.py: name one of them"):
        choose(None, name, fleet)


def test_an_inventory_without_a_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inventory = tmp_path / "fleet.py"
    inventory.write_text('_sparks = ["a"]')
    with pytest.raises(Refused, match=r"fleet\.py: it has no list with a host in it"):
        choose(None, str(inventory), Inventory.empty())
    with pytest.raises(Refused, match="spark-9: there is no such file, and no host of that name is found"):
        choose(None, "spark-9", Inventory.empty())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Refused, match=r"the directory that holds deploy\.py"):
        choose(None, "inventory/sparks.py", Inventory.empty())


def test_patterns_of_no_host() -> None:
    there = "a,b,c has no such host and no such list. It has the hosts a, b, c and the lists sparks, left: name one"
    for patterns in ({"limit": ["a", "d"]}, {"exclude": ["d*"]}, {"limit": ["empty"]}):
        with pytest.raises(Refused, match=there):
            choose(["a"], "a,b,c", **patterns)
    with pytest.raises(Refused, match="--exclude left b: no host of a,b,c is left"):
        choose([], "a,b,c", limit=["[ab]"], exclude=["left", "b"])
    choose(["a", "c"], "a,b,c", limit=["sparks", "[ab]"], exclude=["b*"])
    choose(None, "a,b,c")


def test_a_fleet_that_is_not_reached(inventory: Path) -> None:
    """pyinfra then never comes to the task; each host has its line with reason and remedy all the same."""
    status, said = pyinfra(str(inventory), "deploy.py", "--exclude", "@local")
    assert status == 1
    told = said.partition("\n--> sparkfleet:\n")[2].splitlines()
    assert [line.split()[0] for line in told] == ["a", "b"]
    for line in told:
        assert "not reached, nothing was changed. Could not connect (" in line and "Look whether it is on" in line
    assert "--> sparkfleet:" not in pyinfra(str(inventory), "exec", "--limit", "[ab]", "--", "true")[1]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("Authentication error (username=you) (Authentication failed.)", "Correct its ssh_user and ssh_key"),
        ("SSH host key error (Host key for a does not\nmatch.)", "does not match.). If the host was set up anew"),
        ("Could not resolve hostname (x)", "Correct its ssh_hostname"),
        ("SSH error (Error reading \x1b[2J banner)", "Error reading \ufffd[2J banner). Look whether it is on"),
        (None, "see above why. Look"),
    ],
)
def test_a_host_that_is_not_reached(
    said: str | None, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(unreached, "_unreached", {"a": said} if said else {})
    assert told in unreached.why_unreached("a")
    report.outcome(["a"])
    assert f"a  not reached, nothing was changed. {unreached.why_unreached('a')}\n" in capsys.readouterr().err
    (host,) = report.document(["a"]).hosts.values()
    assert host.verdict == "not reached" and host.trouble == f"{unreached.why_unreached('a')}."
