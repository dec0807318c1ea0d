"""Names of distributions."""

import re


def normal(name: str) -> str:
    """A distribution's name as the packaging standards normalise it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()
