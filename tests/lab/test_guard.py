"""What keeps an engine from starting, on one real host; and recipes that exclude each other.

A cause is made by hand, as a person or an upgrade would, and taken away again. Most of it needs no engine to start.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.hosts import Lab
from sparkfleet.catalog.recipes import RECIPES
from tests.lab.conftest import Spark, pyinfra

UNIT, SECOND = "vllm-tiny-llama.service", "vllm-tiny-second.service"
GUARD = "/etc/sparkfleet/tiny-llama.guard"
MODEL = "/var/lib/sparkfleet/models/tiny-llama"
KEY = "sesame-open-yourself-0123456789"


@pytest.fixture(scope="module")
def spark(sparks: list[Spark]) -> Iterator[Spark]:
    """A host on which all is as it was deployed, its unit stopped."""
    spark = sparks[0]
    run = pyinfra("deploy.py", "--limit", spark.name)
    assert run.status == 0, run.said
    spark.sh(f"systemctl stop {UNIT}")
    yield spark
    run = pyinfra("deploy.py", "--limit", spark.name)
    assert run.status == 0, run.said


def refusal(spark: Spark) -> str:
    """Start the unit, which must be refused at once and for good; what its journal says."""
    spark.sh(f"systemctl reset-failed {UNIT}; systemctl start {UNIT}", check=False)
    shown = spark.show(UNIT, "SubState", "NRestarts", "ExecMainStatus", "InvocationID")
    invocation = shown.pop("InvocationID")
    journal = spark.sh(f"journalctl --output=cat --no-pager _SYSTEMD_INVOCATION_ID={invocation}")
    assert shown == {"SubState": "failed", "NRestarts": "0", "ExecMainStatus": "78"}, journal
    return journal


def passes(spark: Spark) -> bool:
    """Whether the guard lets something start in the unit's place, now."""
    return "started" in spark.sh(
        f"runuser -u sparkfleet -- python3 -I /opt/sparkfleet/agent.pyz guard {GUARD} /bin/echo started 2>&1",
        check=False,
    )


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        ("touch $site/certifi-*.dist-info/RECORD", "certifi-"),
        ("cp -p $patched /root/patched && echo '# edited' >> $patched", "was changed after it was sealed"),
        (f"mv {MODEL}/config.json /root", "model tiny-llama: config.json is missing"),
        (f"cp {MODEL}/model.safetensors {MODEL}/more.safetensors", "more.safetensors is not of this model"),
        (f"""sed -i 's/"memory": [0-9]*/"memory": 99999999999999/' {GUARD}""", "GiB to start (weights 0.1 + KV"),
        (f"mv {GUARD} /root", f"{GUARD} cannot be read"),
    ],
)
def test_a_host_that_is_not_as_it_was_deployed(spark: Spark, cause: str, said: str) -> None:
    site = spark.sh("ls -d /opt/sparkfleet/releases/*/lib/python3.*/site-packages")
    patched = f"{site}/vllm/model_executor/layers/fused_moe/experts/cutlass_moe.py"
    before = f"cp -p {site}/certifi-*.dist-info/RECORD /root/record; cp -p {GUARD} /root/guard"
    assert passes(spark)
    spark.sh(f"site={site}; patched={patched}; {before}; {cause}")
    try:
        journal = refusal(spark)
    finally:
        spark.sh(
            f"[ ! -e /root/patched ] || mv /root/patched {patched}; touch -r /root/record {site}/certifi-*/RECORD;"
            f"[ ! -e /root/config.json ] || mv /root/config.json {MODEL}; rm -f {MODEL}/more.safetensors;"
            f"cp -p /root/guard {GUARD}"
        )
    assert "sparkfleet guard: refused: " in journal and "Remedy: " in journal
    assert said in journal
    assert passes(spark), "the cause is gone"


@pytest.mark.parametrize(
    ("scenario", "said"),
    [
        ("old-driver", "driver: expected 580.142 or newer"),
        ("mismatch", "Driver/library version mismatch"),
        ("no-devices", "No devices were found"),
    ],
)
def test_a_driver_that_must_not_serve(lab: Lab, spark: Spark, scenario: str, said: str) -> None:
    lab.set_scenario(spark.host, scenario)
    try:
        journal = refusal(spark)
    finally:
        lab.set_scenario(spark.host, "good")
    assert said in journal
    assert passes(spark)


def test_a_port_that_is_taken_and_a_start_once_it_is_free(spark: Spark) -> None:
    spark.sh("systemd-run --quiet --unit=foreign python3 -m http.server --bind 127.0.0.1 8000")
    spark.sh("until ss -ltn 2>/dev/null | grep -q :8000 || grep -q 1F40 /proc/net/tcp; do sleep 0.2; done")
    try:
        journal = refusal(spark)
    finally:
        spark.sh("systemctl stop foreign")
    assert "port 8000: a process of user root listens there already" in journal
    spark.sh(f"systemctl start {UNIT}", timeout=600)
    assert spark.process(UNIT)["ActiveState"] == "active"


def deploy_both(spark: Spark, own: Path, first: str, *more: str) -> str:
    """Deploy two recipes into a memory that has room for one; what the run said."""
    recipes = {"tiny-llama": ["tiny-llama", "tiny-second"], "tiny-second": ["tiny-second", "tiny-llama"]}[first]
    data = {"recipes": recipes, "recipe_directory": str(own), "memory_total": 4.0}
    options = [word for key, value in data.items() for word in ("--data", f"{key}={json.dumps(value)}")]
    run = pyinfra("deploy.py", "--limit", spark.name, *options, *more, json_output=False)
    assert run.status == 0, run.said
    return run.said


def states(spark: Spark) -> dict[str, str]:
    return {unit: spark.show(unit, "ActiveState", "UnitFileState")["ActiveState"] for unit in (UNIT, SECOND)}


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a recipe of the user's own: the healthy model by another name."""
    path = tmp_path_factory.mktemp("own")
    text = (RECIPES / "tiny-llama.yaml").read_text(encoding="utf-8")
    text = text.replace("name: tiny-llama\n", "name: tiny-second\n", 1).replace(
        "served_as: tiny-llama", "served_as: two"
    )
    (path / "tiny-second.yaml").write_text(text)
    return path


def test_two_that_do_not_fit_together_swap(spark: Spark, own: Path) -> None:
    said = deploy_both(spark, own, "tiny-llama")
    assert (
        "tiny-llama and tiny-second exclude each other: tiny-llama 1.7 + tiny-second 1.7 + operating system 1.0" in said
    )
    assert states(spark) == {UNIT: "active", SECOND: "inactive"}
    assert spark.sh(f"systemctl is-enabled {UNIT} {SECOND} || true").split() == ["enabled", "disabled"]
    spark.sh(f"systemctl start {SECOND}", timeout=600)
    assert states(spark) == {UNIT: "inactive", SECOND: "active"}


def test_which_of_them_runs_is_one_line_of_inventory_and_a_key_stays_secret(
    spark: Spark, own: Path, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    key.write_text(KEY + "\n")
    public = 'recipe_overrides={"tiny-second": {"bind": "0.0.0.0"}}'
    said = deploy_both(spark, own, "tiny-second", "-vvv", "--debug", "--data", f"api_key_file={key}", "--data", public)
    assert states(spark) == {UNIT: "inactive", SECOND: "active"}
    assert spark.sh(f"systemctl is-enabled {UNIT} {SECOND} || true").split() == ["disabled", "enabled"]

    ask = f"curl -s -o /dev/null -w '%{{http_code}}' http://{spark.host.address}:8000/v1/models"
    script = ask if spark.sh("command -v curl || true") else _asked_by_python(spark.host.address)
    assert spark.sh(script) == "401", "it listens beyond loopback, and asks for its key"

    assert KEY not in said
    assert spark.sh("stat -c '%U %a' /etc/sparkfleet/tiny-second.secrets") == "root 600"
    holders = spark.sh(
        f"grep -rlF {KEY[:20]} /etc /var/lib/sparkfleet /var/log /opt/sparkfleet/agent.pyz || true"
    ).split()
    assert all(
        path == "/etc/sparkfleet/tiny-second.secrets" or "generations/" in path or ".secrets" in path
        for path in holders
    )
    assert spark.sh(f"journalctl --no-pager | grep -cF {KEY[:20]} || true") == "0"
    words = spark.sh("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '")
    assert KEY not in words.replace(f"grep -rlF {KEY[:20]}", "")


def _asked_by_python(address: str) -> str:
    return (
        "python3 - <<'E'\n"
        "import urllib.request, urllib.error\n"
        f"try: print(urllib.request.urlopen('http://{address}:8000/v1/models', timeout=30).status)\n"
        "except urllib.error.HTTPError as error: print(error.code)\nE"
    )


def test_a_recipe_taken_off_is_stopped_and_removed_with_its_secrets(spark: Spark) -> None:
    run = pyinfra("deploy.py", "--limit", spark.name)
    assert run.status == 0, run.said
    assert states(spark)[UNIT] == "active"
    assert spark.sh("ls /etc/sparkfleet").split() == ["tiny-llama.env", "tiny-llama.guard"]
    assert spark.sh(f"systemctl is-enabled {SECOND} || true") in ("not-found", "")
