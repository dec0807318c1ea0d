"""Go back to what served: because a change of this host did not come to serve, or because a person says so."""

import time
from dataclasses import replace
from pathlib import Path

from .. import receipt
from ..errors import HostError
from ..progress import say
from ..proofs import proof
from ..releases import release
from ..shapes import Author, RollbackOrder, Served, TextFile, Unit
from . import generations, units


def apply(order: RollbackOrder, author: Author) -> None:
    """Make the host serve the set of generations that ``order`` names.

    Raises HostError when that set is not remembered, its releases are not whole, or it does not come to serve.
    """
    known = generations.served(receipt.read())
    chosen = next((one for one in reversed(known) if one.units == order.units), None)
    if chosen is None:
        raise HostError("what to go back to is not remembered on this host any more. Look again, then run again.")
    restore(chosen, author)


def back(author: Author, why: str) -> HostError:
    """The error that tells ``why`` a change failed, and what came of going back to what served before it.

    Nothing is done where nothing ever served, or where what served last is what failed.
    """
    known = generations.served(receipt.read())
    if not known or known[-1].units == generations.current():
        return HostError(why)
    say("going back to what served before")
    try:
        restore(known[-1], author)
    except HostError as error:
        return HostError(f"{why}\nGoing back to what served before failed too: {error}")
    return HostError(f"{why}\nThe host went back to what served before, and that serves again: {_said(known[-1])}.")


def restore(chosen: Served, author: Author) -> None:
    """Lay down and start the generations of ``chosen``, remove other units of ours, and verify what serves."""
    kept = tuple(_with_todays_key(generations.load(name, digest)) for name, digest in chosen.units.items())
    units.refuse_foreign(kept)
    for unit in kept:
        found = release.state(Path(unit.release))
        if not found.sealed:
            raise HostError(f"release {found.name}: it cannot be gone back to, {found.problem or 'it is not sealed'}.")
    left = generations.current()
    units.change(kept, tuple(name for name in left if name not in chosen.units), author)
    for expectation in chosen.expectations:
        outcome = proof.verify(expectation)
        proof.remember(outcome, author)
        if not outcome.passed:
            raise HostError(f"{expectation.recipe}: {outcome.reason}")
    generations.remember_served(author, chosen.expectations, round(time.time(), 1), left)
    say(f"serves: {_said(chosen)}")


def _with_todays_key(unit: Unit) -> Unit:
    """The unit with the secrets that are on the host now: a key that was replaced does not come back."""
    return replace(
        unit, files=tuple(_as_it_is(file) if file.path.endswith(".secrets") else file for file in unit.files)
    )


def _as_it_is(file: TextFile) -> TextFile:
    try:
        return replace(file, content=Path(file.path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return file  # the unit was taken off and its secrets with it


def _said(chosen: Served) -> str:
    return ", ".join(f"{name} from {chosen.releases.get(name, '?')}" for name in chosen.units) or "nothing"
