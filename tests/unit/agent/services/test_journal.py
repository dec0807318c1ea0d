"""Out of a long journal, the lines that say why."""

from sparkfleet.agent.services.journal import pick

LINES = [
    "INFO 11-29 16:00:01 [api_server.py:1] vLLM API server version 0.32.0",
    "\x1b[31mERROR\x1b[0m 11-29 16:00:09 [core.py:866] EngineCore failed to start.",
    '  File "/opt/x/vllm/engine.py", line 3, in start',
    "    raise ValueError(",
    "ValueError: Free memory on device (2.1/23.4 GiB) is less than desired GPU memory utilization",
    "ValueError: Free memory on device (2.1/23.4 GiB) is less than desired GPU memory utilization",
    "WARNING 11-29 16:00:02 [system_utils.py:255] This can cause errors like `OSError: [Errno 24]`",
    "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig",
    "  Value error, Unrecognized model in /models/dummy.",
    "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
]


def test_the_cause_is_shown_once_and_without_its_consequences() -> None:
    assert pick(LINES, 8) == [
        "ERROR 11-29 16:00:09 [core.py:866] EngineCore failed to start.",
        "ValueError: Free memory on device (2.1/23.4 GiB) is less than desired GPU memory utilization",
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig"
        " Value error, Unrecognized model in /models/dummy.",
    ]


def test_without_a_cause_the_last_lines_are_shown() -> None:
    assert pick(["one", "", "two", "three"], 2) == ["two", "three"]


def test_an_empty_journal_is_empty() -> None:
    assert pick([], 8) == []
