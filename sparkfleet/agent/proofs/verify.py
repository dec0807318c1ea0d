"""The role ``verify``: every recipe is asked, each outcome recorded; what was all good is remembered to go back to."""

import time

from ..progress import say
from ..services import generations, switch
from ..shapes import Author, VerifyOrder
from . import proof


def apply(order: VerifyOrder, author: Author) -> None:
    """Verify every expectation.

    Raises HostError when one fails. If what failed is not what served last, the host has gone back to that.
    """
    failed = []
    for expectation in order.expectations:
        outcome = proof.verify(expectation)
        proof.remember(outcome, author)
        if outcome.passed:
            note = f", {outcome.note}" if outcome.note else ""
            say(f"{expectation.recipe}: verified, {outcome.tokens_per_second:.1f} tok/s{note}")
        else:
            failed.append(f"{expectation.recipe}: {outcome.reason}")
    if failed:
        raise switch.back(author, "\n".join(failed))
    generations.remember_served(author, order.expectations, round(time.time(), 1))
