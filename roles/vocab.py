"""The vocabularies of gpt-oss, for engines that would fetch them from the internet at their first start.

They come from this machine, which gets them once for all hosts of a run: see ``sparkfleet.vocabularies``.
"""

from pyinfra import logger

from roles._lib.facts import Run
from roles._lib.operations import converge as _converge
from sparkfleet.agent.shapes import VocabOrder
from sparkfleet.desired import Desired
from sparkfleet.vocabularies import packed


def _contents(wanted: Desired, run: Run) -> dict[str, str]:
    names = tuple(one.name for one in wanted.vocab.files)
    return packed(names, run.plan.vocabularies_from, logger.info)


def converge() -> None:
    """Every vocabulary that an engine of this host needs is there, to the byte."""
    _converge(
        "vocab",
        "vocabularies of gpt-oss",
        lambda wanted, run: [VocabOrder(wanted.vocab, _contents(wanted, run))],
    )
