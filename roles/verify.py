"""Started is not enough: the right model answers, and what it says is not garbage."""

from roles._lib.facts import current as _current
from roles._lib.operations import converge as _converge
from roles._lib.operations import order as _order
from sparkfleet.agent.shapes import DeepOrder, VerifyOrder
from sparkfleet.plan import RELEASES


def converge() -> None:
    """Each recipe that was (re)started, or failed before, is asked its question; a bad answer fails the host."""
    _converge("verify", "answers are sane", lambda wanted, _: [VerifyOrder(wanted.expectations)])


def ask() -> None:
    """Ask every recipe now, whatever was verified before."""
    _order("verify", "ask now", lambda wanted, _: [VerifyOrder(wanted.expectations)])


def read_all() -> None:
    """Read every file of the releases in use, and hold it to what its distribution and the release's receipt say."""
    names = tuple(one.name for one in _current().wanted.releases)
    _order("deep", "every file by hash", lambda *_: [DeepOrder(RELEASES, names)])
