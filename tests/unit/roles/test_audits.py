"""What people and machines are told of an audit."""

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from syrupy.assertion import SnapshotAssertion

from roles._lib import audits
from sparkfleet import roofline
from sparkfleet.agent.audit import tally
from sparkfleet.agent.audit.shapes import Audit, AuditQuestion, Model
from tests.unit.agent import checkpoints


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    directory = tmp_path_factory.mktemp("qwen36")
    config, tensors = checkpoints.qwen36(experts=32)
    tensors["model.language_model.layers.0.strange.weight"] = ("I8", (1000, 2000))
    path = str(checkpoints.write(directory, config, tensors))
    (found,) = tally.audit(AuditQuestion((Model("qwen3.6-35b-nvfp4", path, ""),))).audits
    return replace(found, path="/var/lib/sparkfleet/models/m")


def text(audit: Audit, baseline: float = 0.0, hosts: int = 1) -> str:
    out = StringIO()
    names = [f"spark-{i:02}" for i in range(1, hosts + 1)]
    audits.show(audit, names, baseline, Console(file=out, width=80, highlight=False))
    return out.getvalue()


def test_the_text_of_an_audit(audit: Audit, snapshot: SnapshotAssertion) -> None:
    assert text(audit, baseline=40.8, hosts=5) == snapshot


def test_the_text_of_one_that_cannot_be_read() -> None:
    shown = text(Audit("r", "/m", trouble="/m: cannot be read: No such file or directory."))
    assert shown.splitlines()[1:] == ["spark-01: r: /m", "  /m: cannot be read: No such file or directory."]


def test_what_machines_get(audit: Audit) -> None:
    found = json.loads(json.dumps(audits.document(audit)))
    assert found["read"] == sum(group["read"] for group in found["groups"])
    assert found["ceiling"] == round(273e9 / found["read"], 2)
    assert found["leftovers"][:2] == ["model.language_model.layers.*.linear_attn.in_proj_qkvz", "lm_head"]


def test_a_model_that_is_not_quantised_has_no_leftovers(tmp_path: Path) -> None:
    checkpoints.write(tmp_path, {}, {"lm_head.weight": ("BF16", (10_000, 1_000))})
    (found,) = tally.audit(AuditQuestion((Model("r", str(tmp_path), ""),))).audits
    assert roofline.leftovers(found) == ()
    assert roofline.ceiling(found) == 273e9 / 20e6
    assert roofline.in_eight_bits(found) == roofline.ceiling(found)
