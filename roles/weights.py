"""Model weights below the models directory: every file of the recipe's manifest, byte for byte."""

from roles._lib.operations import converge as _converge
from sparkfleet.agent.shapes import WeightsOrder


def converge() -> None:
    """Every model of this host's recipes is complete."""
    _converge("weights", "complete models", lambda wanted, _: [WeightsOrder(wanted.weights)])
