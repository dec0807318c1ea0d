"""Pages of ``docs/`` with parts that are made from the catalog."""

import re
from collections.abc import Mapping


def rendered(text: str, parts: Mapping[str, str]) -> str:
    """A page with each part anew, between ``<!-- generated: NAME -->`` and ``<!-- end -->``."""
    for name, part in parts.items():
        begin, end = f"<!-- generated: {name} -->", "<!-- end -->"
        assert begin in text, f"the page has no {begin}"
        whole = f"{begin}\n{part}\n{end}"
        text = re.sub(f"{re.escape(begin)}.*?{end}", lambda _, whole=whole: whole, text, count=1, flags=re.S)  # type: ignore[misc]
    return text
