"""What looks like a secret, by its name or by its own form: it has no place in a recipe, and is never shown."""

import re
from collections.abc import Iterable, Mapping

#: Last words of a name that holds a secret; ACCESS_KEY_ID is half of a pair.
_NAME = re.compile(
    r"(^|[_-])(token|secret|password|passwd|credentials?|api[_-]?key|access[_-]key([_-]id)?|private[_-]key)$",
    re.IGNORECASE,
)
_FORM = re.compile(
    r"\b(hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{16,}|nvapi-[\w-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|AKIA[0-9A-Z]{16})\b"
    r"|-----BEGIN |\bBearer \S{8,}|://[^/\s:@]+:[^/\s@]+@"
)


def is_secret(name: str, value: str) -> bool:
    """Whether ``name`` is that of a secret and has a value, or ``value`` has the form of one."""
    return bool(value) and bool(_NAME.search(name) or _FORM.search(value))


def holds_secret(name: str, value: object) -> bool:
    """Whether ``value``, or anything in it if it is a collection, is a secret by its own form or by its name."""
    if isinstance(value, Mapping):
        return any(holds_secret(name if _NAME.search(name) else str(key), part) for key, part in value.items())
    if isinstance(value, list | tuple):
        return any(holds_secret(name, part) for part in value)
    return value is not None and is_secret(name, str(value))


def shown(words: Iterable[str]) -> list[str]:
    """The words of a command line as they may be shown: what looks like a secret is ``***``."""
    found, option = [], ""
    for word in words:
        name, equals, value = word.partition("=")
        if equals and is_secret(name, value):
            found.append(f"{name}=***")
        else:
            found.append("***" if is_secret(option, word) else word)
        option = word if word.startswith("--") else ""
    return found
