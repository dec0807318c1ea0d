"""The tables of docs/preflight.md are those of the catalog.

python -m tests.unit.test_preflight_docs      write them anew
"""

from pathlib import Path
from typing import get_args

from sparkfleet.agent.shapes import Operator
from sparkfleet.catalog import issues
from tests.unit.generated import rendered

DOCS = Path(__file__).parents[2] / "docs/preflight.md"
WORDS = {"stop": "**stop**", "warn": "warning", "info": "note"}


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def parts() -> dict[str, str]:
    """Each generated part of the page, by the name that its markers carry."""
    lines = ["| rule | | what is said | remedy | source |", "|---|---|---|---|---|"]
    for one in issues.issues():
        cells = (f"`{one.id}`", WORDS[one.severity], _cell(one.what), _cell(one.remedy), _cell(one.source))
        lines.append(f"| {' | '.join(cells)} |")
    operators = ", ".join(f"`{one}`" for one in get_args(Operator))
    facts = ["| fact | is |", "|---|---|", *(f"| `{name}` | {_cell(kind)} |" for name, kind in issues.facts())]
    return {"issues": "\n".join(lines), "language": f"Operators: {operators}.\n\n" + "\n".join(facts)}


def test_the_page_is_what_the_catalog_says() -> None:
    text = DOCS.read_text(encoding="utf-8")
    assert text == rendered(text, parts()), "run: python -m tests.unit.test_preflight_docs"


if __name__ == "__main__":
    DOCS.write_text(rendered(DOCS.read_text(encoding="utf-8"), parts()), encoding="utf-8")
