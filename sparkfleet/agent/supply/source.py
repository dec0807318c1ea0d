"""Where another machine of the run hands out files: asked again while it breaks off, given up when nothing comes."""

import http.client
import time
from typing import ClassVar

from ..errors import HostError
from ..shapes import WheelSource

TIMEOUT = 30.0
"""Seconds that the source may be silent."""
TRIES = 5
"""Attempts without a single byte after which the source counts as gone, ``PAUSE`` seconds between them."""
PAUSE = 1.0


class Source:
    """A server of this run. ``what`` it hands out, and what to name ``instead`` of it, in words."""

    what: ClassVar[str]
    instead: ClassVar[str]

    def __init__(self, where: WheelSource) -> None:
        self.where, self.name = where, where.name
        self.connection = http.client.HTTPConnection(where.address, where.port, timeout=TIMEOUT)

    def close(self) -> None:
        self.connection.close()

    def read(self, name: str, limit: int) -> bytes:
        """A short file, at most ``limit`` bytes of it. Raises HostError when the source cannot be asked."""
        failures = 0
        while True:
            try:
                return self.get(name, 0).read(limit)
            except (http.client.HTTPException, ConnectionError, TimeoutError) as error:
                failures += 1
                self.gave_up(error, failures)

    def get(self, name: str, start: int) -> http.client.HTTPResponse:
        """The answer for a file from byte ``start`` on."""
        headers = {"Range": f"bytes={start}-"} if start else {}
        try:
            self.connection.request("GET", f"/{self.where.token}/{name}", headers=headers)
            response = self.connection.getresponse()
        except OSError as error:
            if isinstance(error, ConnectionError | TimeoutError):
                raise
            raise ConnectionError(error.strerror or str(error)) from None  # no route to it
        if response.status != (206 if start else 200):
            self.close()
            raise ConnectionError(f"it answers {response.status} for {name or 'its list'}")
        return response

    def gave_up(self, error: BaseException, failures: int) -> None:
        """Wait for another attempt. Raises HostError when there were enough."""
        self.close()
        if failures < TRIES:
            time.sleep(PAUSE)
            return
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise HostError(
            f"{self.what}: {self.name} hands them out at {self.where.address}, port {self.where.port}, and does not "
            f"answer ({reason}). What came is kept. If it is up, a firewall there or on the way keeps this host out: "
            f"let it in, or name {self.instead}. Then run again."
        )
