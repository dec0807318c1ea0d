"""The tables of docs/patches.md are those of the catalog and of the verdicts that are checked on real files.

python -m tests.unit.patches.test_docs      write them anew
"""

from pathlib import Path

from sparkfleet.catalog.patches import Patch, Standing, covers, load_patches
from tests.unit.generated import rendered
from tests.upstream.verdicts import CUTLASS, FLASHINFER, OF_CUTLASS, OF_FLASHINFER, OF_VLLM, VLLM

DOCS = Path(__file__).parents[3] / "docs/patches.md"
PATCHES = {patch.id: patch for patch in load_patches()}

#: a class and the state of a file, as one word for a table
WORDS = {
    "pristine": "**apply**",
    "applied": "install order",
    "not-needed": "not needed",
    "upstreamed": "upstream has it",
    "not-applicable": "-",
}


def _standing(patch: Patch, version: str) -> Standing:
    return next(one for one in patch.standing if covers(one.versions, version))


def _cell(patch: Patch, version: str, state: str) -> str:
    if state == "pristine" and _standing(patch, version).class_ == "optional":
        return "optional"
    if state == "not-applicable" and _standing(patch, version).class_ == "refused":
        return "refused"
    return WORDS[state]


def _table(name: str, identities: tuple[str, ...], verdicts: dict[str, tuple[str, ...]]) -> str:
    lines = [f"| {name} | {' | '.join(verdicts)} |", f"|---|{'---|' * len(verdicts)}"]
    for at, identity in enumerate(identities):
        cells = [_cell(PATCHES[identity], version, states[at]) for version, states in verdicts.items()]
        lines.append(f"| {identity} | {' | '.join(cells)} |")
    return "\n".join(lines)


def tables() -> dict[str, str]:
    """Each generated part of the page, by the name that its markers carry."""
    lines = ["| | what it does | what it cures | what stays as it was |", "|---|---|---|---|"]
    for one in PATCHES.values():
        lines.append(f"| [{one.id}]({one.link}) | {one.title} | {one.symptom.strip()} | {one.guard} |")
    why = [f"**{one.id}** {one.write_ups.strip()}" for one in PATCHES.values()]
    return {
        "patches": "\n".join(lines),
        "vllm": _table("vLLM", OF_VLLM, VLLM),
        "cutlass": _table("CUTLASS DSL", OF_CUTLASS, CUTLASS),
        "flashinfer": _table("FlashInfer", OF_FLASHINFER, FLASHINFER),
        "write-ups": "\n\n".join(why),
    }


def test_the_page_is_what_the_catalog_says() -> None:
    text = DOCS.read_text(encoding="utf-8")
    assert text == rendered(text, tables()), "run: python -m tests.unit.patches.test_docs"


def test_every_patch_has_a_verdict() -> None:
    assert {*OF_VLLM, *OF_CUTLASS, *OF_FLASHINFER} == set(PATCHES)


if __name__ == "__main__":
    DOCS.write_text(rendered(DOCS.read_text(encoding="utf-8"), tables()), encoding="utf-8")
