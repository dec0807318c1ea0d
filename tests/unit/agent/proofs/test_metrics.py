"""An engine's Prometheus text, of old and new releases, whole and torn."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkfleet.agent.proofs.metrics import Load, load

#: As vLLM 0.32.0 writes it, shortened; two engine cores.
TEXT = """\
# HELP python_gc_objects_collected_total Objects collected during gc
# TYPE python_gc_objects_collected_total counter
python_gc_objects_collected_total{generation="0"} 12345.0
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="openai/gpt-oss-120b"} 3.0
vllm:num_requests_running{engine="1",model_name="openai/gpt-oss-120b"} 1.0
vllm:num_requests_waiting{engine="0",model_name="a \\"b\\" } 9"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 7.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.5 1790000000000
process_cpu_seconds_total 1.5e+03
"""


def test_the_numbers_of_all_engine_cores() -> None:
    assert load(TEXT) == Load(4, 2, 0.5)


def test_the_older_name_of_the_kv_cache() -> None:
    assert load('vllm:gpu_cache_usage_perc{model_name="m"} 0.125') == Load(kv_use=0.125)
    assert load("vllm:kv_cache_usage_perc 0.5\nvllm:gpu_cache_usage_perc 0.1").kv_use == 0.5


@pytest.mark.parametrize("number", ["NaN", "+Inf", "-1", "1e300", "x", ""])
def test_what_is_no_number_stays_unknown_and_is_never_nought(number: str) -> None:
    text = "\n".join(f'{name}{{a="b"}} {number}' for name in ("vllm:num_requests_running", "vllm:kv_cache_usage_perc"))
    assert load(text) == Load()


def test_a_share_above_one_is_no_share() -> None:
    assert load("vllm:kv_cache_usage_perc 34.0") == Load()


@given(st.text())
def test_noise_says_nothing(text: str) -> None:
    assert load(text) == Load() or "vllm:" in text


LABEL = st.text(st.characters(exclude_characters='"\\\n', codec="utf-8"), max_size=20)


@given(
    st.lists(st.tuples(LABEL, st.integers(0, 10**6)), max_size=5),
    st.floats(0, 1),
    st.text(st.characters(exclude_characters="\n", codec="utf-8")).map("# {}".format),
)
def test_what_is_written_is_read(cores: list[tuple[str, int]], share: float, comment: str) -> None:
    lines = [f'vllm:num_requests_running{{model_name="{name}",engine="0"}} {count}.0' for name, count in cores]
    text = "\n".join([comment, *lines, comment, f"vllm:kv_cache_usage_perc{{}} {share!r}"])
    assert load(text) == Load(sum(count for _, count in cores) if cores else None, None, share)
    assert load(text.replace("\n", "\r\n") if "\r" not in text else text) == load(text)
