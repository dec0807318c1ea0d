"""A model from a hub on the management network: to one host, and from there to the other; then it is served."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import hub as hubs
from lab import models
from lab.network import ADDRESS
from tests.lab.conftest import HOME, Outcome, Spark, pyinfra

MODEL = "/var/lib/sparkfleet/models/tiny-hub"
UNIT = "vllm-tiny-hub.service"
TOKEN = "hf_only_this_lab_knows_it"


class Fleet:
    """Both hosts, the hub, and the data that a deploy takes besides the lab's."""

    def __init__(self, sparks: list[Spark], hub: hubs.LocalHub, directory: Path) -> None:
        self.first, self.second = sparks
        self.hub, self.directory = hub, directory
        (directory / "token").write_text(f"{TOKEN}\n")

    def deploy(self, *arguments: str, **data: str | None) -> Outcome:
        chosen = {
            "recipe_directory": str(self.directory),
            "recipes": '["tiny-hub"]',
            "models": "/none",
            "hub": self.hub.endpoint,
            "hub_token": str(self.directory / "token"),
            "models_from": self.first.name,
            **data,
        }
        pairs = (f"{key}={value}" for key, value in chosen.items() if value is not None)
        return pyinfra("deploy.py", *(word for pair in pairs for word in ("--data", pair)), *arguments)

    @property
    def fetched(self) -> list[str]:
        """What the hub has sent since the last time."""
        names = sorted(name for name, _ in self.hub.offsets)
        self.hub.offsets.clear()
        return names


@pytest.fixture(scope="module")
def fleet(sparks: list[Spark], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    directory = tmp_path_factory.mktemp("recipes")
    recipe: dict[str, Any] = yaml.safe_load((HOME / "catalog/recipes/tiny-llama.yaml").read_text(encoding="utf-8"))
    manifest = recipe["model"].pop("files")
    size = sum(file["size"] for file in manifest)
    with hubs.serving(ADDRESS.partition("/")[0]) as hub:
        files = hubs.read(models.default_path() / models.HEALTHY)
        commit = hub.add("lab/tiny-llama", {**files, "README.md": b"# not for engines"})
        hub.token = TOKEN
        recipe |= {"name": "tiny-hub", "served_as": "tiny-hub"}
        recipe["model"] |= {"name": "tiny-hub", "repository": "lab/tiny-llama", "revision": commit}
        recipe["model"] |= {"bytes": size, "source": "lab/models.py"}
        (directory / "tiny-hub.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
        yield Fleet(sparks, hub, directory)


@pytest.fixture(scope="module")
def served(fleet: Fleet) -> Fleet:
    dry = fleet.deploy("--dry")
    assert TOKEN not in dry.said + str(dry.results)
    run = fleet.deploy()
    assert run.status == 0, run.said
    assert TOKEN not in run.said + str(run.results)
    return fleet


def test_the_hub_sends_each_file_once_and_both_hosts_serve_it(served: Fleet) -> None:
    for spark in (served.first, served.second):
        names = spark.sh(f"cd {MODEL} && find . -type f -printf '%P\\n' | sort").split()
        assert "README.md" not in names and "model.safetensors" in names
        assert set(spark.sh(f"find {MODEL} -printf '%U:%G %m\\n'").splitlines()) == {"0:0 755", "0:0 644"}
        assert spark.sh("ls -A /var/lib/sparkfleet/models | grep incoming || true") == ""
        assert spark.show(UNIT, "ActiveState") == {"ActiveState": "active"}
        assert "HF_HUB_OFFLINE=1" in spark.sh("cat /etc/sparkfleet/tiny-hub.env")
        assert TOKEN not in spark.sh("cat /var/lib/sparkfleet/receipt.json; journalctl --output=cat --no-pager")
    assert served.fetched == served.first.sh(f"cd {MODEL} && find . -type f -printf '%P\\n' | sort").split()


def test_a_second_run_asks_no_hub(served: Fleet) -> None:
    asked = len(served.hub.requests)
    run = served.deploy()
    assert run.status == 0 and run.totals["success"] == 0, run.said
    assert len(served.hub.requests) == asked


def test_only_what_was_lost_is_fetched_by_a_process_without_rights(served: Fleet) -> None:
    spark = served.first
    spark.sh(f"rm {MODEL}/model.safetensors && truncate -s 5 {MODEL}/config.json")
    served.fetched  # noqa: B018
    served.hub.rate = 600_000  # long enough to be looked at
    watcher = "until ps -eo user:20,args | grep [a]gent.pyz.fetch; do sleep 0.2; done"
    spark.sh(f"systemd-run --quiet --unit=watch-fetch bash -c '{watcher}'")
    try:
        run = served.deploy("--limit", spark.name)
    finally:
        served.hub.rate = 0
    assert run.status == 0, run.said
    assert served.fetched == ["config.json", "model.safetensors"]
    seen = spark.sh("journalctl --unit=watch-fetch --output=cat --no-pager; systemctl stop watch-fetch || true")
    assert "sparkfleet " in seen and "root " not in seen.split("agent.pyz fetch")[0].splitlines()[-1], seen
    assert TOKEN not in seen
    assert spark.show(UNIT, "ActiveState") == {"ActiveState": "active"}


def test_a_spark_mends_itself_from_the_other_without_a_hub(served: Fleet) -> None:
    spark = served.second
    spark.sh(f"rm {MODEL}/tokenizer.json")
    asked = len(served.hub.requests)
    run = served.deploy()
    assert run.status == 0, run.said
    assert len(served.hub.requests) == asked
    assert "copying tiny-hub from spark-01" in run.said
    assert spark.sh(f"test -s {MODEL}/tokenizer.json && echo there") == "there"


def test_a_refusal_of_the_hub_is_told_and_the_unit_goes_on(served: Fleet) -> None:
    spark = served.first
    (served.directory / "token").write_text("hf_wrong\n")
    spark.sh(f"mv {MODEL}/tokenizer_config.json /root/")
    try:
        run = served.deploy("--limit", spark.name)
    finally:
        (served.directory / "token").write_text(f"{TOKEN}\n")
        spark.sh(f"mv /root/tokenizer_config.json {MODEL}/")
    assert run.status != 0
    assert "the hub does not know the token" in run.said and "hf_wrong" not in run.said
    assert spark.show(UNIT, "ActiveState") == {"ActiveState": "active"}
    assert served.deploy("--limit", spark.name).totals["success"] == 0
