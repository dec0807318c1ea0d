"""What the library that renders gpt-oss needs of a host, by which of the two an engine brings. Pure.

openai-harmony fetches its vocabulary from the internet when it is used first; oss-harmony has it in itself.
"""

from collections.abc import Mapping

from sparkfleet.catalog.engines import Engine
from sparkfleet.catalog.recipes import Recipe
from sparkfleet.errors import UserError

#: The vocabularies on every host that needs them, under both names: root's, and not to be written by a unit's user,
#: because openai-harmony deletes a file of its cache whose bytes are not right.
DIRECTORY = "/opt/sparkfleet/vocab"

#: Absolute, because openai-harmony does not expand ``~``. The first is its own, the second that of Python's tiktoken.
_CACHES = {"TIKTOKEN_RS_CACHE_DIR": DIRECTORY, "TIKTOKEN_CACHE_DIR": DIRECTORY}

#: Where both libraries look for a file by its plain name. Wins over the cache, and nothing is tried after it.
_BASE = "TIKTOKEN_ENCODINGS_BASE"


def vocabularies(recipe: Recipe, engine: Engine) -> tuple[str, ...]:
    """The vocabularies that a host needs for a recipe: those it names, and that of gpt-oss whether named or not.

    None for an engine that has them in itself: what is not used need not be had, least of all without internet.
    """
    if engine.harmony != "openai-harmony":
        return ()
    gpt_oss = ("o200k_base",) if recipe.model.architecture == "GptOssForCausalLM" else ()
    return tuple(sorted({*recipe.vocabularies, *gpt_oss}))


def environment(recipe: Recipe, engine: Engine) -> dict[str, str]:
    """The environment of a recipe on an engine, with what the vocabularies take.

    Raises UserError for a variable that leads the library where they are not.
    """
    given = recipe.on(engine.name).environment
    for name, why in misleading(recipe, engine, given).items():
        raise UserError(f"recipe {recipe.name}: environment: {name}={given[name]}: {why} Take it out of the recipe.")
    return {**(_CACHES if vocabularies(recipe, engine) else {}), **given}


def misleading(recipe: Recipe, engine: Engine, given: Mapping[str, str]) -> dict[str, str]:
    """Those variables of ``given`` that lead the library where the vocabularies are not, and why that is so."""
    ours = _CACHES if vocabularies(recipe, engine) else {}
    right = {**ours, _BASE: DIRECTORY} if ours else {}
    checked = {_BASE: "", **ours} if engine.harmony else ours
    return {
        name: _why(name, engine, bool(ours))
        for name, value in given.items()
        if name in checked and value != right.get(name)
    }


def _why(name: str, engine: Engine, laid_down: bool) -> str:
    if laid_down:
        return f"the vocabularies that this model needs are laid down in {DIRECTORY}, and would not be found."
    if engine.harmony == "oss-harmony":
        return (
            f"engine {engine.name} brings oss-harmony, which has its vocabularies in itself; with {name} it takes them "
            f"from there and from nowhere else, and sparkfleet lays none down there."
        )
    return "sparkfleet lays no vocabularies down there; name those that the model needs under `vocabularies`."
