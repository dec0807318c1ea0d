"""Started is not enough: the right model answers, and what it says is not garbage."""

from roles._lib.operations import converge as _converge
from roles._lib.operations import order as _order
from sparkfleet.agent.shapes import VerifyOrder


def converge() -> None:
    """Each recipe that was (re)started, or failed before, is asked its question; a bad answer fails the host."""
    _converge("verify", "answers are sane", lambda wanted, _: [VerifyOrder(wanted.expectations)])


def ask() -> None:
    """Ask every recipe now, whatever was verified before."""
    _order("verify", "ask now", lambda wanted, _: [VerifyOrder(wanted.expectations)])
