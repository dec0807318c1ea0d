"""The agent travels as one file, runs from memory, and needs nothing of the control machine's packages."""

import ast
import json
import os
import re
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path
from zipimport import zipimporter

import pytest

from sparkfleet import bundle

AGENT = Path(bundle.__file__).parent / "agent"


def test_the_same_sources_give_the_same_bytes() -> None:
    fresh = subprocess.run(
        [sys.executable, "-c", "from sparkfleet.bundle import agent_hash; print(agent_hash())"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert fresh.stdout.strip() == bundle.agent_hash()


def test_only_the_agent_is_in_it() -> None:
    names = zipfile.ZipFile(BytesIO(bundle.agent())).namelist()
    assert all(
        name.startswith("sparkfleet/agent/") or name in ("__main__.py", "sparkfleet/__init__.py") for name in names
    )


@pytest.mark.parametrize("path", sorted(AGENT.rglob("*.py")), ids=lambda path: path.name)
def test_it_imports_the_standard_library_and_itself(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 10))):
        if isinstance(node, ast.Import):
            assert all(alias.name.split(".")[0] in sys.stdlib_module_names for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            others = {"huggingface_hub"} if path.name == "fetch.py" and node.col_offset else set()  # of a release
            assert (node.module or "").split(".")[0] in sys.stdlib_module_names | others


def test_it_runs_from_memory_with_its_order_on_standard_input(tmp_path: Path) -> None:
    command, code = bundle.carried_agent("observe")
    done = subprocess.run(
        ["sh", "-c", command],
        input=f"{code}\n{json.dumps({'no': 'question'})}\n",
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 1
    assert "order not understood" in done.stderr and "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_host_says_what_it_lacks() -> None:
    done = subprocess.run(["sh", "-c", bundle.installed_agent("observe")], capture_output=True, text=True, input="")
    assert done.stdout.strip() == bundle.OTHER_AGENT and done.returncode == 64
    none = subprocess.run(
        ["/bin/sh", "-c", bundle.installed_agent("observe")], capture_output=True, text=True, env={"PATH": "/none"}
    )
    assert none.stdout.strip() == bundle.NO_PYTHON


def test_a_host_knows_its_agent_by_owner_mode_and_bytes_in_any_language(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "agent.pyz"
    home.write_bytes(bundle.agent())
    tmp_path.chmod(0o755)
    monkeypatch.setattr(bundle, "AGENT", str(home))
    monkeypatch.setattr(bundle, "_OURS", bundle._OURS.replace("0 ", f"{os.getuid()} "))

    def said() -> str:
        return subprocess.run(["sh", "-c", bundle.installed_agent("help")], capture_output=True, text=True).stdout

    for mode, ours in ((0o644, True), (0o664, False)):
        home.chmod(mode)
        assert ("Exit status" in said()) == ours
    home.chmod(0o644)
    home.rename(tmp_path / "other")
    home.symlink_to(tmp_path / "other")
    assert bundle.OTHER_AGENT in said()
    assert "%F" not in bundle.installed_agent("help"), "it says `regular file` in the host's language"


def test_the_compiled_agent_is_the_same_and_is_taken_first(tmp_path: Path) -> None:
    from sparkfleet.agent.settle import compile_all

    home = tmp_path / "agent.pyz"
    entry = zipfile.ZipFile(BytesIO(bundle.agent())).read("__main__.py").decode()
    found = re.search(r'f"/opt/sparkfleet/(compiled-[0-9a-f]{16}-)', entry)
    assert found
    compiled = tmp_path / f"{found[1]}{sys.hexversion:x}.zip"
    with zipfile.ZipFile(BytesIO(bundle.agent())) as sources, zipfile.ZipFile(home, "w") as moved:
        for name in sources.namelist():
            moved.writestr(
                name, sources.read(name).replace(b"/opt/sparkfleet/compiled", f"{tmp_path}/compiled".encode())
            )

    def run() -> str:
        code = "import sys, runpy; sys.argv = ['a', 'help']; import atexit; atexit.register(lambda: print("
        code += f"sys.modules['sparkfleet.agent.shapes'].__file__)); runpy.run_path({str(home)!r}, run_name='__main__')"
        return subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True).stdout

    assert run().splitlines()[-1].startswith(str(home))
    compiled.write_bytes(compile_all(home.read_bytes()))
    assert run().splitlines()[-1] == f"{compiled}/sparkfleet/agent/shapes.pyc"
    module = "sparkfleet/agent/patching/probe_helpers.py"
    assert zipimporter(str(compiled)).get_data(module) == (AGENT / "patching/probe_helpers.py").read_bytes()
    compiled.write_bytes(b"cut off")
    assert run().splitlines()[-1].startswith(str(home)), "what cannot be read is passed over"
