"""Weights are fetched, broken off and gone on with by the hub's client of every release: its generations differ."""

import re

import pytest

from sparkfleet.catalog.yaml import CATALOG
from tests.unit.agent.models.test_hub import (  # noqa: F401
    hub,
    place,
    test_a_gated_model_names_licence_and_token,
    test_a_hub_that_asks_to_wait_is_waited_for,
    test_a_run_that_was_cut_off_is_gone_on_with,
    test_a_transfer_that_breaks_goes_on_where_it_was,
    test_the_token_reaches_the_hub_alone,
)
from tests.upstream.wheels import make_venv, pip

NAME = "huggingface-hub"


LOCKS = "".join(path.read_text(encoding="utf-8") for path in (CATALOG / "engines").glob("vllm-*.lock"))
VERSIONS = sorted(set(re.findall(rf"^{NAME}==(\S+)", LOCKS, re.MULTILINE)))


@pytest.fixture(params=VERSIONS)
def client(request: pytest.FixtureRequest) -> str:
    environment = make_venv(f"{NAME}-{request.param}")
    if not (environment / "installed").exists():
        pip(environment, "install", f"{NAME}=={request.param}")
        (environment / "installed").touch()
    return str(environment / "bin" / "python")
