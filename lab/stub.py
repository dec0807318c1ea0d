"""A wheel of metadata only: the vllm command, whatever built it, asks for a distribution called ``vllm``."""

import hashlib
import zipfile
from base64 import urlsafe_b64encode
from io import BytesIO
from pathlib import Path

STUB = "0.32.0+cpu"
"""Its version: the engine's own, and ``+cpu``, by which the engine knows that it runs without a GPU."""
STUB_WHEEL = f"vllm-{STUB}-py3-none-any.whl"


def stub_bytes() -> bytes:
    """The wheel, the same bytes each time and everywhere."""
    place = f"vllm-{STUB}.dist-info"
    files = {
        f"{place}/METADATA": f"Metadata-Version: 2.1\nName: vllm\nVersion: {STUB}\n",
        f"{place}/WHEEL": "Wheel-Version: 1.0\nGenerator: sparkfleet\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{place}/RECORD"] = "".join(_record(*item) for item in files.items()) + f"{place}/RECORD,,\n"
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as wheel:  # stored: how zlib deflates varies
        for name, text in files.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.create_system = 3  # as on Unix, wherever it is made
            entry.external_attr = 0o644 << 16
            wheel.writestr(entry, text)
    return buffer.getvalue()


def stub_hash() -> str:
    """SHA-256 of the wheel, in hexadecimal."""
    return hashlib.sha256(stub_bytes()).hexdigest()


def write_stub(directory: Path) -> Path:
    """Put the wheel into ``directory`` and return its path."""
    path = directory / STUB_WHEEL
    path.write_bytes(stub_bytes())
    return path


def _record(name: str, text: str) -> str:
    digest = urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(text.encode())}\n"
