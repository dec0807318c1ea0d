"""Shared by the tests of engines."""

from pathlib import Path

import pytest

from sparkfleet.catalog import engines


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(engines, "ENGINES", tmp_path)
    return tmp_path
