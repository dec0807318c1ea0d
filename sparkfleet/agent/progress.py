"""What a person sees while the agent works: one line a step, on standard output."""

import time

_started = time.monotonic()


def say(text: str) -> None:
    """Print a line of progress with the seconds since the agent started."""
    print(f"{time.monotonic() - _started:6.1f} s  {text}", flush=True)
