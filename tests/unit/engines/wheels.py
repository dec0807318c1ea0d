"""Small engines and wheels for tests."""

import base64
import hashlib
import zipfile
from pathlib import Path

from sparkfleet.catalog.engines import Engine


def write_wheel(
    directory: Path,
    name: str,
    version: str,
    files: dict[str, str] | None = None,
    tag: str = "py3-none-any",
    needs: str = "",
) -> Path:
    path = directory / f"{name.replace('-', '_')}-{version}-{tag}.whl"
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    members = {
        **(files or {}),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    record = "".join(f"{inside},sha256={_hash(text)},{len(text.encode())}\n" for inside, text in members.items())
    with zipfile.ZipFile(path, "w") as archive:
        for inside, text in {**members, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            archive.writestr(zipfile.ZipInfo(inside), text)
    return path


def _hash(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def engine(**changes: object) -> Engine:
    values: dict[str, object] = {"name": "vllm-9", "title": "t", "python": ("3.12",), "pins": {"vllm": "9"}, **changes}
    return Engine.model_validate(values)
