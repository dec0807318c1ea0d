"""How the command line tells a person what is wrong: one paragraph, exit status 2, no traceback."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import click

from sparkfleet.errors import UserError

P = ParamSpec("P")
R = TypeVar("R")


class BadInput(click.ClickException):
    """Exit status 2, as click gives for a wrong option."""

    exit_code = 2


def explained(function: Callable[P, R]) -> Callable[P, R]:
    """Turn a UserError of ``function`` into its message and exit status 2."""

    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except UserError as error:
            raise BadInput(str(error)) from None

    return wrapper
