"""What vLLM accepts, read from real releases: the committed knowledge is theirs, and no release is of another shape."""

import json

import pytest

from sparkfleet.catalog import engines
from sparkfleet.knowledge import knowledge

from .verdicts import VLLM
from .wheels import sources

pytestmark = pytest.mark.upstream


@pytest.mark.parametrize("version", ["0.20.1", "0.23.0", "0.33.0"])
def test_committed_knowledge_is_that_of_the_release(version: str) -> None:
    # from the x86-64 wheel, whose .py files are those of aarch64 but for a few kernels
    found = json.loads(knowledge(sources("vllm", version), "any", "any", "0"))
    committed = json.loads(engines.engine(f"vllm-{version}").knowledge.read_text(encoding="utf-8"))
    assert found["environment"] == committed["environment"]
    assert found["flags"] == committed["flags"]
    assert found["parsers"] == committed["parsers"]


@pytest.mark.parametrize("version", VLLM)
def test_every_release_can_be_read(version: str) -> None:
    found = json.loads(knowledge(sources("vllm", version), "any", "any", "0"))
    assert len(found["environment"]) > 200 and len(found["flags"]) > 200
    assert found["flags"]["--tensor-parallel-size"] == {"type": "int", "aliases": ["-tp"]}
    assert found["flags"]["--api-key"] == {"type": "str", "many": True}
    assert "marlin" in found["flags"]["--moe-backend"]["choices"]
    assert "openai_gptoss" in found["parsers"]["reasoning"] and "openai" in found["parsers"]["tool"]
