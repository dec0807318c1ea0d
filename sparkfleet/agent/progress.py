"""What a person sees while the agent works: one line a step, on standard output."""

import time

from .wire import legible

_started = time.monotonic()

#: Seconds between two lines about a step that takes long.
INTERVAL = 10.0


def say(text: str) -> None:
    """Print a line of progress with the seconds since the agent started."""
    print(f"{time.monotonic() - _started:6.1f} s  {legible(text)}", flush=True)


class Meter:
    """How far a long copy has come, said every ``INTERVAL`` seconds whether or not there is a terminal."""

    def __init__(self, files: int, size: int) -> None:
        self.files, self.size = files, size
        self.done_files, self.done = 0, 0
        self.told, self.told_at = 0, time.monotonic()

    def __str__(self) -> str:
        return f"{self.done_files} of {self.files} files, {self.done / 1e9:.2f} of {self.size / 1e9:.2f} GB"

    def add(self, size: int) -> None:
        """So many bytes more."""
        self.done += size
        if time.monotonic() - self.told_at >= INTERVAL:
            self.tell()

    def file(self) -> None:
        """One file more is whole."""
        self.done_files += 1

    def tell(self) -> None:
        """Say files, bytes, bytes a second since the last time, and the seconds to go at that rate."""
        now = time.monotonic()
        rate = max(0, self.done - self.told) / max(now - self.told_at, 0.001)
        left = f", {(self.size - self.done) / rate:.0f} s to go" if rate > 0 else ""
        say(f"{self}, {rate / 1e6:.1f} MB/s{left}")
        self.told, self.told_at = self.done, now
