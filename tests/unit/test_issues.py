"""A rule that speaks of what there is not is refused with file and line, before any host is asked."""

from pathlib import Path

import pytest

from sparkfleet.catalog import issues
from sparkfleet.errors import UserError

GOOD = """\
rules:
  - id: a-rule
    severity: warn
    each: file_systems
    when:
      each.read_only: {is: true}
      any:
        - {gpu.driver: {older: $needs.driver_minimum}}
        - {memory.total: {below: 100}}
    what: "disk {each.paths}: {each.free:GiB} GiB"
    remedy: mend it
    source: somebody
"""


def load(tmp_path: Path, text: str) -> str:
    """What is refused, nothing if the file is good."""
    path = tmp_path / "issues.yaml"
    path.write_text(text)
    try:
        issues.rules.__wrapped__(path)
    except UserError as error:
        assert str(error).startswith(f"{path}:")
        return str(error).removeprefix(f"{path}:")
    return ""


def test_a_good_one_is_taken(tmp_path: Path) -> None:
    assert load(tmp_path, GOOD) == ""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("gpu.driver", "gpu.drivr", "8: a-rule: gpu.drivr: no such fact in gpu; there are clock, compute"),
        (
            "each.read_only",
            "each.readonly",
            "6: a-rule: each.readonly: no such fact in each; there are files_f",
        ),
        ("gpu.driver", "gpus.driver", "8: a-rule: gpus.driver: no such fact; there are "),
        ("{below: 100}", "{under: 100}", "9: a-rule: memory.total: unknown operator 'under'; there are is, "),
        ("{below: 100}", "{below: many}", "9: a-rule: memory.total: expected a number after 'below', found 'many'"),
        ("{below: 100}", "{older: '1'}", "9: a-rule: memory.total is a number: 'older' cannot be asked of it"),
        ("$needs.driver_minimum", "$needs.memory", "gpu.driver is a text and needs.memory is a number"),
        ("$needs.driver_minimum", "$needs.nothing", "needs.nothing: no such fact in needs"),
        ("{is: true}", "{is: 'yes'}", "6: a-rule: each.read_only: expected true or false after 'is', found 'yes'"),
        ("{is: true}", "yes", "6: a-rule: each.read_only: expected an operator and a value"),
        ("{is: true}", "{__class__: true}", "unknown operator '__class__'"),
        ("each: file_systems", "each: gpu.driver", "4: a-rule: gpu.driver is a text, no list"),
        ("    each: file_systems\n", "", "5: a-rule: each.read_only: the rule has no `each`"),
        ("{each.paths}", "{each.path}", "10: a-rule: each.path: no such fact in each"),
        ("{each.paths}", "{each.paths:GiB}", "only a number of bytes can be shown in GiB"),
        ("{each.paths}", "{each.paths!r}", "a brace that is no fact"),
        ("severity: warn", "severity: fatal", "3: rules.0.severity: Input should be 'stop', 'warn' or 'info'"),
        ("remedy: mend it\n", "remedie: mend it\n", "unknown key"),
        ("        - {gpu", "        - []\n        - {gpu", "any: expected a list of conditions"),
        ("{gpu.driver: {older: $needs.driver_minimum}}", "{gpu.name: {matches: '('}}", "no regular expression"),
        ("{gpu.driver: {older: $needs.driver_minimum}}", "{gpu.state: {is: fine}}", "expected one of 'ok', 'mismatch'"),
    ],
)
def test_what_cannot_be_is_refused_with_its_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in GOOD
    found = load(tmp_path, GOOD.replace(old, new, 1))
    assert said in found, found


def test_one_id_for_one_rule(tmp_path: Path) -> None:
    assert "13: a-rule: id a-rule is given twice" in load(tmp_path, GOOD + GOOD.removeprefix("rules:\n"))


def test_enough_is_known_and_all_of_it_has_a_source() -> None:
    found = issues.issues()
    assert len(found) >= 25
    assert all(one.source and one.remedy for one in found)
