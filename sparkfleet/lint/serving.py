"""Who can reach the engine, and what a recipe must not carry."""

from collections.abc import Iterator, Mapping
from ipaddress import ip_address

from sparkfleet.agent.secrecy import is_secret
from sparkfleet.lint.case import Case
from sparkfleet.lint.findings import Keys, Trouble
from sparkfleet.lint.registry import rule


@rule("public-bind", "error")
def public_bind(case: Case) -> Iterator[Trouble]:
    """An address that others can reach, on a host that gives its engines no key.

    Why: whoever is in the network can use the model, read what others ask from its metrics, and fill its queue.

    Source: `vllm serve` has no access control but `--api-key` and `VLLM_API_KEY`.
    """
    address = case.recipe.bind
    if not ip_address(address).is_loopback and not case.api_key:
        what = f"bind {address}: others can reach it, and no key is asked for."
        yield Trouble(
            ("bind",), what, "give hosts an `api_key_file`, or write 127.0.0.1 and put a proxy with a key before it."
        )


@rule("secret-in-recipe", "error", waivable="no", instead=("variable-value", "flag-value", "foreign-variable"))
def secret_in_recipe(case: Case) -> Iterator[Trouble]:
    """A token, key or password among the flags or variables.

    Why: recipes are committed, copied and shown in plans, and a flag is in the process list of every user of the host.

    Source: the names of variables and flags that hold one, and the forms of known tokens.
    """
    for keys, value in _texts(case):
        if is_secret(str(keys[-1]), value):
            what = f"{'.'.join(map(str, keys))} holds a secret."  # and is not shown
            yield Trouble(keys[:2], what, "take it out, and consider it known to others if the file was shared.")


def _texts(case: Case) -> Iterator[tuple[Keys, str]]:
    for name, value in case.serving.environment.items():
        yield ("environment", name), value
    for name, flag in case.serving.flags.items():
        yield from _inside(("flags", name), flag)


def _inside(keys: Keys, value: object) -> Iterator[tuple[Keys, str]]:
    if isinstance(value, str):
        yield keys, value
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from _inside((*keys, str(key)), part)
    elif isinstance(value, list):
        for part in value:
            yield from _inside(keys, part)
