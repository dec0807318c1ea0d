"""The generated parts of docs/recipes.md are what the catalog says.

python -m tests.unit.recipes.test_docs      write them anew
"""

from pathlib import Path

from sparkfleet.catalog import recipes
from sparkfleet.catalog.overrides import DecodeValues, MemoryValues, Overrides
from sparkfleet.catalog.recipes import NOT_SHOWN, KnownBad, Recipe
from tests.unit.generated import rendered

DOCS = Path(__file__).parents[3] / "docs/recipes.md"
HEAD = ["recipe", "engine", "memory", "context", "tok/s", "source", "on GB10"]


def _shipped() -> list[Recipe | KnownBad]:
    return [recipes.entry(path) for path in sorted(recipes.RECIPES.glob("*.yaml"))]


def _real() -> list[Recipe]:
    return [one for one in _shipped() if isinstance(one, Recipe) and one.model.repository]


def _row(one: Recipe) -> list[str]:
    first, *others = one.engines
    shown = [other.name for other in others if not other.evidence.startswith(NOT_SHOWN)]
    elsewhere = f"no; {', '.join(shown)}" if shown else "no"
    decode = one.decode
    many = (
        "".join(f"; {speed:g} with {clients} clients" for clients, speed in decode.aggregate.items()) if decode else ""
    )
    return [
        f"`{one.name}`: {one.title}",
        f"`{first.name}`",
        f"{one.memory.total:.1f}",
        f"{one.context:,}",
        f"{decode.baseline:g}{many}" if decode else "",
        f"{' '.join(decode.source.split())} ({decode.engine})" if decode else "",
        elsewhere if first.evidence.startswith(NOT_SHOWN) else "yes",
    ]


def _engines(one: Recipe) -> str:
    lines = []
    for engine in one.engines:
        said = " ".join((engine.reason or "").split())
        shown = " ".join(engine.evidence.split())
        lines.append(f"- `{engine.name}`: {said + ' ' if said else ''}Evidence: {shown}.")
    return f"**{one.name}** ({one.model.repository}). Evidence: {' '.join(one.evidence.split())}.\n" + "\n".join(lines)


def parts() -> dict[str, str]:
    """Each generated part of the page, by the name that its markers carry."""
    table = [HEAD, ["---"] * len(HEAD), *map(_row, _real())]
    bad = [one for one in _shipped() if isinstance(one, KnownBad)]
    keys = [*Overrides.model_fields]
    for name, inner in (("memory", MemoryValues), ("decode", DecodeValues)):
        keys[keys.index(name)] = f"{name} ({', '.join(inner.model_fields)})"
    return {
        "recipes": "\n".join(f"| {' | '.join(row)} |" for row in table),
        "bad": "\n".join(
            f"- `{one.name}`: {one.title}. {' '.join(one.known_bad.reason.split())} Take `{one.known_bad.instead}`. "
            f"Evidence: {' '.join(one.evidence.split())}."
            for one in bad
        ),
        "engines": "\n\n".join(map(_engines, _real())),
        "overrides": "\n".join(f"- {key}" for key in keys),
    }


def test_the_page_is_what_the_catalog_says() -> None:
    text = DOCS.read_text(encoding="utf-8")
    assert text == rendered(text, parts()), "run: python -m tests.unit.recipes.test_docs"


if __name__ == "__main__":
    DOCS.write_text(rendered(DOCS.read_text(encoding="utf-8"), parts()), encoding="utf-8")
