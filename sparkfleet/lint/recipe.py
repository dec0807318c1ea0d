"""The recipe itself: whether it can be read, what it is for, and what it lives with."""

from collections.abc import Iterator

from sparkfleet.lint.case import Case
from sparkfleet.lint.findings import Trouble
from sparkfleet.lint.registry import RULES, Rule, described, rule


@rule("engine-unread", "warning")
def engine_unread(case: Case) -> Iterator[Trouble]:
    """An engine of which nobody has read what it accepts: one that you supply.

    Why: names of variables and flags, their values and the names of parsers are then not checked at all; a misspelt one
    is found at the start, or never. What depends on vLLM's version, the model and memory alone is checked all the same.

    Source: there is no `catalog/engines/NAME.knowledge.json`; `sparkfleet lock` makes it from your wheel.
    """
    if case.known is None:
        names = case.recipe.engine_names
        place = ("engines", names.index(case.engine.name)) if case.engine.name in names else ("engines",)
        what = f"{case.engine.name}: names and values of variables, flags and parsers are not checked."
        yield Trouble(place, what, f"`{case.engine.lock_command}` reads them.")


@rule("engine-not-listed", "error", waivable="no")
def engine_not_listed(case: Case) -> Iterator[Trouble]:
    """An engine that the recipe is not for, asked for with `--engine`.

    Why: nobody has said that it works there, and a deploy refuses it; the other findings tell what it would take.

    Source: `engines` of the recipe.
    """
    if case.engine.name not in case.recipe.engine_names:
        what = f"the recipe is not for {case.engine.name}; it is for: {', '.join(case.recipe.engine_names)}."
        yield Trouble(("engines",), what, "take one of these, or add the engine once it is shown to work.")


def recipe_invalid() -> None:
    """A file that is no recipe: not YAML, a key that there is not, a value that cannot be.

    Why: nothing else can be said of it, and a deploy refuses it.

    Source: the schema in `sparkfleet/catalog/recipes.py`.
    """


def known_bad() -> None:
    """A way to serve a model that people tried and that does not work, in the catalog so that it is not tried again.

    Why: the entry itself says; and which recipe to take instead.

    Source: `known_bad` and `evidence` of the entry.
    """


def engine_unknown() -> None:
    """An engine that is not in the catalog.

    Why: nobody can say what would be installed.

    Source: `catalog/engines/`.
    """


def port_twice() -> None:
    """Two recipes of one host that may run at the same time and want the same port.

    Why: the second one to start finds it taken and fails, after minutes of loading.

    Source: both are on one host; recipes that exclude each other for want of memory may share a port.
    """


def waiver_without_effect() -> None:
    """A waiver of a rule that finds nothing on any engine of the recipe, that there is not, or that cannot be waived.

    Why: its reason is out of date, and it would hide the next finding that has another reason.

    Source: `waivers` of the recipe.
    """


def _register(identity: str, documented: object, severity: str, waivable: str) -> Rule:
    found = described(identity, "recipe", severity, documented, waivable, check=lambda _: iter(()))  # type: ignore[arg-type]
    RULES[identity] = found
    return found


RECIPE_INVALID = _register("recipe-invalid", recipe_invalid, "error", "no")
KNOWN_BAD = _register("known-bad", known_bad, "error", "no")
ENGINE_UNKNOWN = _register("engine-unknown", engine_unknown, "error", "no")
PORT_TWICE = _register("port-twice", port_twice, "error", "no")
WAIVER_WITHOUT_EFFECT = _register("waiver-without-effect", waiver_without_effect, "warning", "no")
