"""What can go wrong on a host for reasons a person can mend."""


class HostError(Exception):
    """One short paragraph: the thing, what was expected, what was found, the remedy."""
