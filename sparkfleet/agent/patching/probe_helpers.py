"""Names for behaviour probes; sent as text to the Python of a release, so it imports nothing of ours.

A probe asks a file what it does, not what it says: functions are taken out of the real file and called with a GPU that
is not there, so no GPU and none of the file's own imports are needed.
"""

import ast
import os
import site as _site
import sys
from typing import Any, NamedTuple

#: The site-packages directory that is probed; set by ``main``.
SITE = ""


class Capability(NamedTuple):
    """A compute capability as vLLM's platforms have it."""

    major: int
    minor: int

    def to_int(self) -> int:
        """12.1 as 121."""
        return self.major * 10 + self.minor


class Platform:
    """A CUDA platform with one GPU of the given capability."""

    def __init__(self, major: int, minor: int) -> None:
        self.capability = Capability(major, minor)

    def is_cuda(self) -> bool:
        return True

    def is_rocm(self) -> bool:
        return False

    def get_device_capability(self, device_id: int = 0) -> Capability:
        return self.capability

    def is_device_capability(self, capability: Any, device_id: int = 0) -> bool:
        return capability in (tuple(self.capability), self.capability.to_int())

    def has_device_capability(self, capability: Any, device_id: int = 0) -> bool:
        if isinstance(capability, tuple):
            return tuple(self.capability) >= capability
        return self.capability.to_int() >= int(capability)

    def is_device_capability_family(self, capability: int, device_id: int = 0) -> bool:
        return self.capability.to_int() // 10 == capability // 10


class Anything:
    """Stands for whatever a function mentions and a probe does not care about."""

    def __getattr__(self, name: str) -> "Anything":
        return Anything()

    def __call__(self, *args: Any, **kwargs: Any) -> "Anything":
        return Anything()


def function(path: str, name: str, **names: Any) -> Any:
    """The function ``name`` (or ``Class.method``) of the file at ``path`` in ``SITE``; ``names`` are its globals."""
    with open(os.path.join(SITE, path), encoding="utf-8") as file:
        node: Any = ast.parse(file.read())
    for part in name.split("."):
        (node,) = (
            child
            for child in node.body
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and child.name == part
        )
    node.decorator_list = []
    node.returns = None
    for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
        argument.annotation = None
    scope = dict(names)
    exec(compile(ast.Module(body=[node], type_ignores=[]), path, "exec"), scope)
    return scope[node.name]


def has(path: str, text: str) -> bool:
    """Whether there is a file at ``path`` in ``SITE`` with ``text`` in it."""
    try:
        with open(os.path.join(SITE, path), encoding="utf-8") as file:
            return text in file.read()
    except FileNotFoundError:
        return False


def owner(path: str, method: str) -> str:
    """The name of the class of the file at ``path`` that defines ``method``."""
    with open(os.path.join(SITE, path), encoding="utf-8") as file:
        module = ast.parse(file.read())
    (name,) = (
        node.name
        for node in module.body
        if isinstance(node, ast.ClassDef) and any(getattr(child, "name", "") == method for child in node.body)
    )
    return name


def main(directory: str, code: str) -> int:
    """Run a probe: 0 it passed, 1 it failed, 3 it cannot be tried because a module is not there."""
    global SITE
    SITE = directory
    if directory not in sys.path:
        _site.addsitedir(directory)
    scope = {name: value for name, value in globals().items() if not name.startswith("_")}
    try:
        exec(compile(code, "probe", "exec"), scope)
    except ModuleNotFoundError as error:
        print(f"{error.name} is not installed")
        return 3
    except BaseException as error:
        print(f"{type(error).__name__}: {' '.join(str(error).split())}")
        return 1
    return 0
