"""What a conversation takes: golden values, and no guess where nobody knows."""

import pytest

from sparkfleet.catalog.architectures import ARCHITECTURES, Architecture, architecture, architectures, of_repository
from sparkfleet.errors import UserError
from sparkfleet.memory.kv import element_width, kv_need


@pytest.mark.parametrize(
    ("repository", "context", "dtype", "gib"),
    [
        # K+V x 18 full layers x tokens x 8 heads x 64, and 18 sliding layers of 128 tokens
        ("openai/gpt-oss-120b", 131072, "fp8", 2.25),
        ("openai/gpt-oss-120b", 131072, "auto", 4.50),
        # K+V x 10 full layers x tokens x 2 heads x 256, and 30 states of fixed size in 32 bits
        ("Qwen/Qwen3.6-35B-A3B-FP8", 262144, "fp8", 2.56),
        ("Qwen/Qwen3.5-122B-A10B", 262144, "fp8", 3.14),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4", 262144, "fp8", 0.80),
        ("google/gemma-4-26B-A4B-it", 262144, "fp8", 2.60),
    ],
)
def test_golden_values(repository: str, context: int, dtype: str, gib: float) -> None:
    need = kv_need(of_repository(repository), context, dtype)
    assert need.gib is not None, need.reason
    assert round(need.gib, 2) == gib
    assert str(need) == f"{gib:.2f} GiB"


def test_an_unknown_model_says_unknown() -> None:
    assert str(kv_need(of_repository("somebody/new-model"), 4096)).startswith("unknown: its architecture is not in")
    assert of_repository(None) is None


def test_an_architecture_that_kvfit_does_not_know_says_unknown() -> None:
    new = Architecture(
        name="new",
        repositories=("a/b",),
        source="made up",
        config={"model_type": "holographic", "num_hidden_layers": 2},
    )
    need = kv_need(new, 4096)
    assert need.bytes is None
    assert "holographic" in str(need)


def test_a_cache_type_of_unknown_width_says_unknown() -> None:
    need = kv_need(of_repository("openai/gpt-oss-120b"), 4096, "turboquant_4bit")
    assert str(need) == "unknown: the width of --kv-cache-dtype turboquant_4bit is not known"


def test_auto_follows_the_type_of_the_model() -> None:
    assert element_width("auto") == element_width("auto", "bfloat16") == element_width("auto", "auto") == 2
    assert element_width("auto", "float32") == 4
    assert element_width("fp8_e5m2", "float32") == 1


@pytest.mark.parametrize("path", sorted(ARCHITECTURES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_architecture_is_named_as_its_file_and_known_to_kvfit(path) -> None:  # type: ignore[no-untyped-def]
    found = architecture(path)
    assert found.name == path.stem
    assert kv_need(found, 4096).bytes


def test_a_repository_has_one_architecture() -> None:
    names = [name.lower() for one in architectures() for name in one.repositories]
    assert len(names) == len(set(names))


def test_a_pattern_that_does_not_fit_is_refused(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "x.yaml"
    path.write_text("name: x\nrepositories: [a/b]\nsource: s\nconfig: {num_hidden_layers: 5}\nlayer_pattern: [a, b]\n")
    with pytest.raises(UserError, match="whole number of times"):
        architecture(path)
