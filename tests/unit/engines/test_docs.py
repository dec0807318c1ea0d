"""The generated parts of docs/engines.md are what the catalog says.

python -m tests.unit.engines.test_docs      write them anew
"""

from pathlib import Path

from sparkfleet.catalog import engines
from sparkfleet.catalog.engines import Engine
from sparkfleet.patchset import pinned
from tests.unit.generated import rendered

DOCS = Path(__file__).parents[3] / "docs/engines.md"
ENGINES = [engines.engine(path.stem) for path in sorted(engines.ENGINES.glob("*.yaml"))]


def _row(engine: Engine) -> list[str]:
    text = "" if engine.sources else engine.lock.read_text(encoding="utf-8")
    pins = {**engine.pins, **pinned(text)}
    wheels = engines.wheels(text)
    lock = f"{len(wheels)} wheels, {sum(wheels.values()) / 1e9:.1f} GB" if wheels else "made by the lab"
    return [
        f"`{engine.name}`",
        pins["torch"],
        pins.get("flashinfer-python", "none"),
        pins.get("nvidia-cutlass-dsl", "none"),
        engine.harmony or "",
        "yours to make" if engine.sources else lock,
        f"{engine.unpacked} GB" if engine.unpacked else "not known",
    ]


def parts() -> dict[str, str]:
    """Each generated part of the page, by the name that its markers carry."""
    head = ["engine", "torch", "FlashInfer", "CUTLASS DSL", "harmony", "lock", "on disk"]
    table = [head, ["---"] * len(head), *map(_row, ENGINES)]
    overlaps: dict[str, list[str]] = {}
    for one in ENGINES:
        for overlap in one.overlaps:
            pair = f"{overlap.winner} after {overlap.loser}: {overlap.why}"
            overlaps.setdefault(pair, []).append(f"`{one.name}`")
    given = [f"- `{one.lock_command}`" for one in ENGINES if one.sources]
    notes = [f"**{one.name}.** {' '.join(one.notes.split())}" for one in ENGINES]
    sizes = [f"- `{one.name}`: {one.unpacked_is}." for one in ENGINES if one.unpacked_is]
    return {
        "engines": "\n".join(f"| {' | '.join(row)} |" for row in table),
        "given": "\n".join(given),
        "overlaps": "\n".join(f"- {pair} ({', '.join(names)})" for pair, names in overlaps.items()),
        "sizes": "\n".join(sizes),
        "notes": "\n\n".join(notes),
    }


def test_the_page_is_what_the_catalog_says() -> None:
    text = DOCS.read_text(encoding="utf-8")
    assert text == rendered(text, parts()), "run: python -m tests.unit.engines.test_docs"


if __name__ == "__main__":
    DOCS.write_text(rendered(DOCS.read_text(encoding="utf-8"), parts()), encoding="utf-8")
