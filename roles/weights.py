"""Model weights below the models directory: every file of the model, byte for byte, at the revision of its recipe.

From another Spark if ``models_from`` names one; else from the directory ``models`` on the host where it has the model,
else from the hub: fetched with the client of the release, by a process without root's rights. What has come is kept
when a run is cut off. An ``unpinned`` revision is resolved once and stays; ``sparkfleet pin RECIPE`` moves it.
"""

import os
from dataclasses import replace
from pathlib import Path

from roles._lib import wheel_sources
from roles._lib.facts import Run
from roles._lib.operations import converge as _converge
from sparkfleet.agent.shapes import WeightsOrder
from sparkfleet.desired import Desired
from sparkfleet.errors import UserError
from sparkfleet.plan import HostPlan


def converge() -> None:
    """Every model of this host's recipes is complete."""
    _converge("weights", "complete models", _orders)


def _orders(wanted: Desired, run: Run) -> list[WeightsOrder]:
    giver = run.plan.models_from
    if giver:
        lacking = {state.model for state in run.seen.weights if state.problem} if run.seen else set()
        return [
            WeightsOrder(
                tuple(
                    replace(one, peer=wheel_sources.model_on_spark(run, giver, one.model))
                    for one in wanted.weights
                    if one.model in lacking
                )
            )
        ]
    return [WeightsOrder(wanted.weights, _token(run.plan) if any(model.hub for model in wanted.weights) else None)]


def _token(plan: HostPlan) -> str | None:
    """The token of the hub, read when it is sent and held nowhere. Raises UserError when its file cannot be read."""
    if plan.hub_token:
        try:
            return Path(plan.hub_token).read_text(encoding="ascii").strip() or None
        except (OSError, UnicodeDecodeError):
            raise UserError(f"hub_token: {plan.hub_token} cannot be read, or is no text. Correct it.") from None
    return os.environ.get("HF_TOKEN") or None
