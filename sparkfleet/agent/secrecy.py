"""What looks like a secret, by its name or by its own form: it has no place in a recipe, and is never shown."""

import re
from collections.abc import Iterable

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
