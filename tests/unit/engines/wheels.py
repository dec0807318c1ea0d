"""Small engines and wheels for tests."""

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
    meta = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}"
    with zipfile.ZipFile(path, "w") as archive:
        for inside, text in (files or {}).items():
            archive.writestr(zipfile.ZipInfo(inside), text)
        archive.writestr(zipfile.ZipInfo(f"{info}/METADATA"), meta)
        archive.writestr(zipfile.ZipInfo(f"{info}/WHEEL"), f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        archive.writestr(zipfile.ZipInfo(f"{info}/RECORD"), "")
    return path


def engine(**changes: object) -> Engine:
    values: dict[str, object] = {"name": "vllm-9", "title": "t", "python": ("3.12",), "pins": {"vllm": "9"}, **changes}
    return Engine.model_validate(values)
