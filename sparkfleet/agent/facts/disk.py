"""Room where sparkfleet writes."""

import os
from pathlib import Path

from .shapes import Disk


def look(path: str) -> Disk:
    """Room where ``path`` is or would be."""
    place = Path(path)
    while not os.path.exists(place) and place != place.parent:
        place = place.parent
    about = os.statvfs(place)
    return Disk(
        path=path,
        device=place.stat().st_dev,
        free=about.f_bavail * about.f_frsize,
        total=about.f_blocks * about.f_frsize,
        read_only=bool(about.f_flag & os.ST_RDONLY),
        files_free=about.f_favail if about.f_files else None,
    )
