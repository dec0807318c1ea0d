"""``vllm bench serve`` of real releases has what we ask of it, and leaves what we read."""

from pathlib import Path

import pytest

from sparkfleet.agent.audit.shapes import Model
from sparkfleet.agent.bench.shapes import Bench, BenchOrder
from sparkfleet.agent.bench.vllm import Generator
from sparkfleet.agent.shapes import Expectation, Speed
from sparkfleet.catalog import engines

from .wheels import sources

pytestmark = pytest.mark.upstream

RELEASES = ["0.20.1", "0.23.0", "0.33.0"]

#: Modules of other distributions that the generator imports at its start, by the distribution that has them.
NEEDED = ("aiohttp", "numpy", "pillow", "pybase64", "regex", "tqdm")


def benchmarks(version: str) -> str:
    files = Path(sources("vllm", version), "vllm", "benchmarks").rglob("*.py")
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


@pytest.mark.parametrize("version", RELEASES)
def test_every_option_is_one_of_the_release(version: str) -> None:
    expectation = Expectation("r", "u", 8000, "served", 0, (), {}, "", (), (), Speed(0))
    order = BenchOrder("run", (), (1,), 200, 32, "u", "/h", "/r", "/l")
    command = Generator(Bench(expectation, "/r", Model("r", "/m", ""), True), order, {}).command(1, 4, "/d")
    text = benchmarks(version)
    options = [word for word in command if word.startswith("--")]
    assert len(options) > 15
    assert [option for option in options if f'"{option}"' not in text] == []
    for key in ("ttfts", "itls", "output_lens", "errors", "duration", "openai-chat"):
        assert f'"{key}":' in text, key
    assert "OPENAI_API_KEY" in text


@pytest.mark.parametrize("version", RELEASES)
def test_its_closure_has_what_it_imports_and_not_what_other_data_sets_need(version: str) -> None:
    lock = engines.engine(f"vllm-{version}").lock.read_text(encoding="utf-8")
    for name in NEEDED:
        assert f"\n{name}==" in lock, name
    assert "\npandas==" not in lock  # the data set `custom` would have our own prompt
