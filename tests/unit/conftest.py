"""Shared by the unit tests."""

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("house", deadline=None)  # a busy machine is no defect
settings.load_profile("house")


@pytest.fixture
def lock(tmp_path: Path) -> str:
    """The path of a small lock, as a wheelhouse carries one."""
    path = tmp_path / "requirements.lock"
    path.write_text(f"vllm==0.32.0+cpu --hash=sha256:{'a' * 64}\n", encoding="utf-8")
    return str(path)
