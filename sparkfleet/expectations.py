"""What a host must prove of a recipe that it serves, from the recipe and ``catalog/proof.yaml``. Pure."""

import re

from sparkfleet.agent.shapes import Expectation, JournalRule, Prompt, Speed
from sparkfleet.catalog import proof as catalog
from sparkfleet.catalog.proof import Canary, proof
from sparkfleet.catalog.recipes import Journal, Recipe
from sparkfleet.plan import RecipePlan

_REQUIRED = (
    "Without that line the engine does not run as this recipe is meant to: it chose another kernel, or its words "
    "changed with its release. Compare `journalctl -u UNIT` with the recipe's `journal`."
)
_FORBIDDEN = "This recipe says of such a line that the engine then runs with the wrong kernel."


def expectation(plan: RecipePlan) -> Expectation:
    """What must be true of ``plan``'s unit."""
    recipe, serving = plan.recipe, plan.recipe.on(plan.engine)
    return Expectation(
        recipe=plan.name,
        unit=plan.unit,
        port=plan.port,
        model=recipe.served_as,
        context=recipe.context,
        command=plan.command,
        environment=dict(plan.environment),
        parser=str(serving.flags.get("reasoning-parser", "")),
        journal=(*_general(), *_own(serving.journal)),
        prompts=_prompts(recipe.canary),
        speed=_speed(recipe, plan.gpu),
        address=plan.address,
    )


def _general() -> tuple[JournalRule, ...]:
    return tuple(JournalRule(one.pattern, False, one.meaning) for one in proof().journal)


def _own(journal: Journal) -> tuple[JournalRule, ...]:
    required = (JournalRule(re.escape(text), True, _REQUIRED) for text in journal.required)
    forbidden = (JournalRule(re.escape(text), False, _FORBIDDEN) for text in journal.forbidden)
    return (*required, *forbidden)


def _prompts(canary: Canary) -> tuple[Prompt, ...]:
    return tuple(_prompt(one, canary) for one in canary.prompts or proof().prompts)


def _prompt(one: catalog.Prompt, canary: Canary) -> Prompt:
    limit = one.max_tokens or canary.max_tokens
    return Prompt(one.name, one.ask, one.system or "", one.expect or "", limit, one.stream)


def _speed(recipe: Recipe, spark: bool) -> Speed:
    decode, tokens = recipe.decode, recipe.canary.speed_tokens
    if decode is None:
        return Speed(tokens, spark)
    return Speed(tokens, spark, decode.floor or 0.0, decode.ceiling or 0.0, proof().slow)
