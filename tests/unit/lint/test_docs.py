"""The rules in docs/lint.md are those that there are, in the words of their docstrings.

python -m tests.unit.lint.test_docs      write them anew
"""

from pathlib import Path

from sparkfleet.lint import check  # noqa: F401 it registers the rules
from sparkfleet.lint.data import foreign, forks, kernels
from sparkfleet.lint.registry import RULES, Rule
from tests.unit.generated import rendered

DOCS = Path(__file__).parents[3] / "docs/lint.md"

FAMILIES = ("environment", "flags", "kernels", "memory", "model", "serving", "recipe")
WAIVABLE = {"yes": "", "unread": ", waivable if not read", "no": ", never waived"}


def _rule(rule: Rule) -> str:
    head = f"**`{rule.id}`** ({rule.severity}{WAIVABLE[rule.waivable]}). {rule.what}"
    return f"{head}\n*Why.* {rule.why}\n*Source.* {rule.source}"


def parts() -> dict[str, str]:
    """Each generated part of the page, by the name that its markers carry."""
    text = []
    for family in FAMILIES:
        rules = [_rule(rule) for rule in RULES.values() if rule.family == family]
        text.append("\n\n".join([f"### {family.capitalize()}", *rules]))
    return {"rules": "\n\n".join(text)}


def test_the_page_is_what_the_docstrings_say() -> None:
    text = DOCS.read_text(encoding="utf-8")
    assert text == rendered(text, parts()), "run: python -m tests.unit.lint.test_docs"


def test_every_rule_belongs_to_a_family_of_the_page() -> None:
    assert {rule.family for rule in RULES.values()} == set(FAMILIES)


def test_the_data_of_the_rules_can_be_read() -> None:
    assert foreign() and forks() and kernels()
    names = [one.name for one in foreign()]
    assert len(names) == len(set(names))


if __name__ == "__main__":
    DOCS.write_text(rendered(DOCS.read_text(encoding="utf-8"), parts()), encoding="utf-8")
