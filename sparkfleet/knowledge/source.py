"""Names of a Python source tree: where each is defined, through imports, without importing anything."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sparkfleet.errors import UserError

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Found:
    """A definition: the module (``vllm.config.model``) it is in, and its node."""

    module: str
    node: ast.AST


class Source:
    """The ``vllm`` package below ``site``. Modules are parsed once."""

    def __init__(self, site: Path) -> None:
        self.site = site
        self.tree = cache(self._tree)
        self.names = cache(self._names)

    def _path(self, module: str) -> Path | None:
        base = self.site.joinpath(*module.split("."))
        return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)

    def exists(self, module: str) -> bool:
        """Whether the tree has such a module."""
        return self._path(module) is not None

    def _tree(self, module: str) -> ast.Module:
        path = self._path(module)
        if path is None:
            raise UserError(f"{self.site}: expected a module {module}, as every vLLM so far has; it is not there.")
        try:
            return ast.parse(path.read_bytes())
        except SyntaxError as error:
            raise UserError(f"{path}:{error.lineno}: not Python as this Python reads it ({error.msg}).") from None

    def _names(self, module: str) -> dict[str, list[ast.AST]]:
        """Definitions at the top of a module, in conditions too: what runs (``else`` of TYPE_CHECKING) comes last."""
        found: dict[str, list[ast.AST]] = {}
        for node in _statements(self.tree(module).body):
            for name in _defined(node):
                found.setdefault(name, []).append(node)
        return found

    def find(self, module: str, name: str) -> list[Found]:
        """Every definition of ``name`` as ``module`` sees it, imports followed; empty when it comes from elsewhere."""
        found: list[Found] = []
        for node in self.names(module).get(name, []):
            if isinstance(node, ast.ImportFrom):
                found += self._imported(module, node, name)
            else:
                found.append(Found(module, node))
        return found

    def _imported(self, module: str, node: ast.ImportFrom, name: str) -> list[Found]:
        origin = next(alias.name for alias in node.names if name in (alias.asname, alias.name))
        where = node.module or ""
        if node.level:
            path = self._path(module)
            parts = module.split(".") if path and path.name == "__init__.py" else module.split(".")[:-1]
            where = ".".join([*parts[: len(parts) - node.level + 1], *filter(None, [node.module])])
        if (where, origin) == (module, name) or not self.exists(where):
            return []
        return self.find(where, origin)

    def find_class(self, module: str, name: str) -> Found | None:
        """The class ``name`` as ``module`` sees it."""
        return next((one for one in self.find(module, name) if isinstance(one.node, ast.ClassDef)), None)

    def lineage(self, found: Found) -> Iterator[Found]:
        """A class and its bases that are in the tree, nearest first."""
        assert isinstance(found.node, ast.ClassDef)
        yield found
        for base in found.node.bases:
            if isinstance(base, ast.Name) and (above := self.find_class(found.module, base.id)):
                yield from self.lineage(above)


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        yield node
        if isinstance(node, ast.If):
            yield from _statements(node.body)
            yield from _statements(node.orelse)
        elif isinstance(node, ast.Try):
            yield from _statements(node.body)


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.ClassDef | Function):
        return [node.name]
    if isinstance(node, ast.ImportFrom):
        return [alias.asname or alias.name for alias in node.names]
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return []
