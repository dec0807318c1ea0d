"""A recipe with nothing to find, and what a test changes in it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from sparkfleet.lint.check import check_file
from sparkfleet.lint.findings import Finding

REVISION = "0123456789abcdef0123456789abcdef01234567"

CLEAN: dict[str, Any] = {
    "name": "it",
    "title": "A recipe with nothing to find",
    "engines": ["vllm-0.23.0"],
    "model": {
        "name": "it",
        "repository": "somebody/it-8b",
        "revision": REVISION,
        "bytes": 16_000_000_000,
        "source": "nobody",
        "quantization": {"method": "none"},
    },
    "served_as": "it",
    "port": 8000,
    "context": 8192,
    "memory": {"weights": 15.0, "kv_bytes": 4_000_000_000, "overhead": 6.0, "start_spike": 4.0},
    "start_timeout": 600,
    "evidence": "none on GB10",
}


def changed(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with ``changes``, mappings merged."""
    result = dict(base)
    for key, value in changes.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = changed(result[key], value) if both else value
    return result


Check = Callable[..., tuple[Finding, ...]]


@pytest.fixture
def check(tmp_path: Path) -> Check:
    """Findings of the clean recipe with changes, on one engine or on those of the changes."""

    def of(changes: Mapping[str, Any], engine: str = "", only: str | None = None) -> tuple[Finding, ...]:
        content = changed(CLEAN, {"engines": [engine], **changes} if engine else changes)
        path = tmp_path / f"{content['name']}.yaml"
        path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
        return check_file(path, only)

    return of
