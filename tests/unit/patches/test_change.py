"""Applying and taking back: whole, idempotent, and without touching what is not ours."""

import contextlib
import json
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sparkfleet.agent.errors import HostError
from sparkfleet.agent.patching import Probe, apply, revert, status
from sparkfleet.agent.patching.store import DIRECTORY

from .sites import ALL, ARCH, FILES, KERNEL, LAYERS, MODEL, SLOW, engine, install, marks, patch, patch_set, target, tree


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return engine(tmp_path / "site-packages")


def states(site: Path) -> dict[str, str]:
    return {row.patch: row.state for row in status(site, ALL).rows}


def test_applies_all_then_nothing_then_gives_every_byte_back(site: Path) -> None:
    before = tree(site)
    report = apply(site, ALL)
    assert report.converged and set(report.changed) == {KERNEL, MODEL}
    assert set(states(site).values()) == {"applied"}
    assert (site / KERNEL).read_text() == (
        "def arch(cap):\n    if cap in (120, 121):\n        return 'fast'\n    return 'slow but right'\n"
    )
    assert (site / MODEL).read_text() == "LAYERS = 48\nGDN = 36\nHEADS = 16\n"
    again = marks(site)
    assert apply(site, ALL).changed == ()
    assert marks(site) == again
    assert set(revert(site, ALL).changed) == {KERNEL, MODEL}
    assert tree(site) == before


def test_status_writes_nothing(site: Path) -> None:
    before = marks(site)
    report = status(site, ALL)
    assert not report.converged and {row.state for row in report.rows} == {"pristine"}
    assert marks(site) == before


def test_a_smaller_set_takes_back_what_it_no_longer_has(site: Path) -> None:
    apply(site, ALL)
    fewer = patch_set(ARCH, patch("P2", *SLOW.targets, wanted=False), patch("P3", *LAYERS.targets, wanted=False))
    assert not status(site, fewer).converged
    assert apply(site, fewer).converged
    assert (site / MODEL).read_text() == FILES[MODEL]
    assert "slow but right" not in (site / KERNEL).read_text() and "121" in (site / KERNEL).read_text()


def test_an_empty_set_leaves_no_trace(site: Path) -> None:
    before = tree(site)
    apply(site, ALL)
    none = patch_set(*(patch(one.id, *one.targets, wanted=False) for one in ALL.patches))
    assert apply(site, none).converged
    assert tree(site) == before


def test_a_newer_form_of_a_patch_replaces_the_older_one(site: Path) -> None:
    apply(site, ALL)
    newer = patch_set(patch("P1", target(KERNEL, ("    if cap == 120:\n", "    if cap // 10 == 12:\n"))), SLOW, LAYERS)
    (row, *_) = status(site, newer).rows
    assert row.state == "pristine" and "earlier" in row.reason
    assert apply(site, newer).converged
    assert "cap // 10 == 12" in (site / KERNEL).read_text()
    revert(site, newer)
    assert (site / KERNEL).read_text() == FILES[KERNEL] and not (site / DIRECTORY).exists()


def test_revert_without_what_was_kept(site: Path) -> None:
    """The edits alone are enough: what they give back is checked against the RECORD."""
    before = tree(site)
    apply(site, ALL)
    subprocess.run(["rm", "-r", site / DIRECTORY], check=True)
    assert states(site)["P1"] == "applied"
    assert apply(site, ALL).changed == ()
    revert(site, ALL)
    assert tree(site) == before


def test_hand_edit_is_a_conflict_and_stops_everything(site: Path) -> None:
    (site / MODEL).write_text("LAYERS = 47\n")
    before = tree(site)
    with pytest.raises(HostError, match=r"P3 is conflict \(engine/model.py\).*edited by hand.*Nothing was changed"):
        apply(site, ALL)
    assert tree(site) == before
    assert states(site) == {"P1": "pristine", "P2": "pristine", "P3": "conflict"}


def test_hand_edit_after_apply_is_not_reverted_over(site: Path) -> None:
    apply(site, ALL)
    with (site / MODEL).open("a") as file:
        file.write("MINE = 1\n")
    before = tree(site)
    with pytest.raises(HostError, match=r"engine/model\.py: we patched it"):
        revert(site, ALL)
    assert tree(site) == before


def test_a_file_that_is_gone_is_missing(site: Path) -> None:
    (site / KERNEL).unlink()
    assert states(site) == {"P1": "missing", "P2": "missing", "P3": "pristine"}
    with pytest.raises(HostError, match="P1 is missing"):
        apply(site, ALL)
    assert (site / MODEL).read_text() == FILES[MODEL]


def test_conflict_in_an_unwanted_patch_stops_nothing(site: Path) -> None:
    (site / MODEL).write_text("LAYERS = 47\n")
    some = patch_set(ARCH, SLOW, patch("P3", *LAYERS.targets, wanted=False))
    assert apply(site, some).converged
    revert(site, some)
    assert (site / MODEL).read_text() == "LAYERS = 47\n"


def test_reinstall_and_upgrade_after_apply(site: Path) -> None:
    apply(site, ALL)
    install(site, "engine", "1.0", FILES)
    assert set(states(site).values()) == {"pristine"}
    assert apply(site, ALL).converged
    revert(site, ALL)
    assert not (site / DIRECTORY).exists() and (site / KERNEL).read_text() == FILES[KERNEL]


def test_uninstalled_after_apply(site: Path) -> None:
    apply(site, ALL)
    for path in FILES:
        (site / path).unlink()
    subprocess.run(["rm", "-r", site / "engine-1.0.dist-info"], check=True)
    assert set(states(site).values()) == {"not-applicable"}
    revert(site, ALL)
    assert not (site / DIRECTORY).exists()


def test_another_version_than_the_set_was_made_for(site: Path) -> None:
    (row, *_) = status(site, patch_set(ARCH, engine="1.1")).rows
    assert row.state == "conflict" and "engine 1.0 is installed, the patch set was made for engine 1.1" in row.reason
    assert status(site, patch_set(ARCH, engine="1.0+cu130")).rows[0].state == "conflict"


def test_a_local_build_is_the_version(tmp_path: Path) -> None:
    install(tmp_path, "engine", "1.0+cu130", FILES)
    assert status(tmp_path, patch_set(ARCH)).rows[0].state == "pristine"


def test_two_versions_at_once_are_a_conflict(site: Path) -> None:
    install(site, "engine", "0.9", {"engine/gone.py": ""})
    assert "installed twice" in status(site, ALL).rows[0].reason


def test_hard_link_into_a_cache_is_left_alone(site: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache.py"
    os.link(site / KERNEL, cache)
    apply(site, ALL)
    assert cache.read_text() == FILES[KERNEL] and os.stat(cache).st_nlink == 1


def test_link_into_a_cache_is_replaced_not_followed(site: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache.py"
    os.rename(site / KERNEL, cache)
    (site / KERNEL).symlink_to(cache)
    assert apply(site, ALL).converged
    assert cache.read_text() == FILES[KERNEL]
    revert(site, ALL)
    assert (site / KERNEL).read_text() == FILES[KERNEL]


def test_directory_that_leads_elsewhere_is_refused(site: Path, tmp_path: Path) -> None:
    os.rename(site / "engine", tmp_path / "checkout")
    (site / "engine").symlink_to(tmp_path / "checkout")
    with pytest.raises(HostError, match=r"is a link to .*checkout, outside"):
        apply(site, ALL)
    assert (tmp_path / "checkout/kernel.py").read_text() == FILES[KERNEL]


def test_mode_and_owner_are_kept(site: Path) -> None:
    (site / KERNEL).chmod(0o640)
    if os.geteuid() == 0:
        os.chown(site / KERNEL, 12345, 12346)
    before = os.stat(site / KERNEL)
    apply(site, ALL)
    after = os.stat(site / KERNEL)
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    revert(site, ALL)
    after = os.stat(site / KERNEL)
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)


def test_line_ends_are_kept(tmp_path: Path) -> None:
    install(tmp_path, "engine", "1.0", {path: text.replace("\n", "\r\n") for path, text in FILES.items()})
    before = tree(tmp_path)
    assert apply(tmp_path, ALL).converged
    data = (tmp_path / MODEL).read_bytes()
    assert data == b"LAYERS = 48\r\nGDN = 36\r\nHEADS = 16\r\n"
    revert(tmp_path, ALL)
    assert tree(tmp_path) == before


def test_line_ends_that_somebody_changed_are_a_conflict(site: Path) -> None:
    (site / MODEL).write_bytes(FILES[MODEL].replace("\n", "\r\n").encode())
    assert states(site)["P3"] == "conflict"


def test_bytecode_of_the_old_text_goes(site: Path) -> None:
    cache = site / "engine/__pycache__"
    cache.mkdir()
    for name in ("kernel.cpython-312.pyc", "kernel.cpython-312.opt-1.pyc", "kernels.cpython-312.pyc"):
        (cache / name).write_bytes(b"old")
    apply(site, ALL)
    assert [path.name for path in cache.iterdir()] == ["kernels.cpython-312.pyc"]
    (cache / "kernel.cpython-312.pyc").write_bytes(b"new")
    revert(site, ALL)
    assert [path.name for path in cache.iterdir()] == ["kernels.cpython-312.pyc"]


def test_spaces_and_a_linked_environment(tmp_path: Path) -> None:
    real = engine(tmp_path / "a place with spaces/lib/python3.12/site-packages")
    (tmp_path / "venv").symlink_to(tmp_path / "a place with spaces")
    linked = tmp_path / "venv/lib/python3.12/site-packages"
    before = tree(real)
    assert apply(linked, ALL).converged
    assert status(real, ALL).converged
    revert(linked, ALL)
    assert tree(real) == before


def test_result_that_is_not_python_is_refused(site: Path) -> None:
    broken = patch_set(patch("P1", target(KERNEL, ("    if cap == 120:\n", "    if cap ==\n"))), LAYERS)
    before = tree(site)
    with pytest.raises(HostError, match="no longer Python"):
        apply(site, broken)
    assert tree(site) == before


def test_patches_in_each_others_way_are_refused(site: Path) -> None:
    overlapping = patch("P2", target(KERNEL, ("cap == 120:\n        return 'fast'\n", "cap == 1:\n        return 0\n")))
    with pytest.raises(HostError, match="in each other's way"):
        apply(site, patch_set(ARCH, overlapping))
    assert (site / KERNEL).read_text() == FILES[KERNEL]


@pytest.mark.parametrize("text", ["raise SystemExit(1)", "assert 1 == 2, 'wrong'", "import engine.nothing.here", "1 /"])
def test_failing_probe_takes_the_whole_set_back(site: Path, text: str) -> None:
    before = tree(site)
    code = "import engine.kernel\n" + text if "1 /" not in text else text
    if "nothing" in text:
        code = "raise ImportError('cannot import name')"
    probed = patch_set(patch("P1", *ARCH.targets, probe=Probe(code, {})), SLOW, LAYERS)
    report = apply(site, probed, python=Path(sys.executable))
    assert not report.converged and report.changed == () and report.probes[0].outcome == "failed"
    assert {row.state for row in report.rows} == {"pristine"}
    assert tree(site) == before


def test_probe_sees_the_patched_file_and_its_environment(site: Path) -> None:
    code = "import os\nfrom engine.kernel import arch\nassert arch(int(os.environ['CAP'])) == 'fast'"
    probe = Probe(code, {"CAP": "121"})
    probed = patch_set(patch("P1", *ARCH.targets, probe=probe), SLOW, LAYERS)
    python = Path(sys.executable)
    (result,) = status(site, probed, python=python, probe=True).probes
    assert (result.outcome, result.detail) == ("failed", "AssertionError:")
    before = tree(site)
    report = apply(site, probed, python=python)
    assert report.converged and report.probes[0].outcome == "passed"
    assert not list(site.rglob("*.pyc"))
    assert status(site, probed, python=python, probe=True).probes[0].outcome == "passed"
    revert(site, probed)
    assert tree(site) == before


def test_probe_that_cannot_be_tried_is_said_and_stops_nothing(site: Path) -> None:
    probed = patch_set(patch("P1", *ARCH.targets, probe=Probe("import no_such_module", {})), SLOW, LAYERS)
    report = apply(site, probed, python=Path(sys.executable))
    assert report.converged and report.probes[0].outcome == "untried" and "no_such_module" in report.probes[0].detail
    other = patch_set(patch("P1", *ARCH.targets, probe=Probe("", {})), SLOW, LAYERS)
    assert status(site, other, probe=True).probes[0].outcome == "untried"  # this directory has no Python of its own


def test_record_without_a_hash_is_a_conflict(site: Path) -> None:
    record = site / "engine-1.0.dist-info/RECORD"
    record.write_text("".join(f"{path},,\n" for path in FILES))
    assert "no hash" in status(site, ALL).rows[0].reason


def test_without_a_record_it_says_so(site: Path) -> None:
    (site / "engine-1.0.dist-info/RECORD").unlink()
    with pytest.raises(HostError, match="RECORD: cannot be read"):
        status(site, ALL)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"schema": 1}', b'{"schema": 1, "files": [{}]}', b"\xff", b"[" * 100_000]
)
def test_state_that_cannot_be_read_is_said(site: Path, content: bytes) -> None:
    apply(site, ALL)
    (site / DIRECTORY / "state.json").write_bytes(content)
    for act in (status, apply, revert):
        with pytest.raises(HostError, match=r"state\.json: cannot be read or is not ours"):
            act(site, ALL)


WRONG = ["../../x", "/etc/passwd", "a/../../x", "", "a//b", "a\0b", "\ud800", 1, None, ["a"], {"a": 1}]


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("key", ["path", "original", "patched", "files"])
def test_state_of_wrong_types_or_paths_is_said(site: Path, key: str, wrong: object) -> None:
    apply(site, ALL)
    state = json.loads((site / DIRECTORY / "state.json").read_text())
    if key == "files":
        state["files"] = wrong if wrong else 7
    else:
        state["files"][0][key] = wrong
    (site / DIRECTORY / "state.json").write_text(json.dumps(state))
    for act in (status, apply, revert):
        with pytest.raises(HostError, match=r"state\.json: cannot be read or is not ours"):
            act(site, ALL)


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("key", ["path", "before", "after", "change", "action", "phase", "steps"])
def test_journal_of_wrong_types_or_paths_is_said(site: Path, key: str, wrong: object) -> None:
    apply(site, ALL)
    step = {"path": KERNEL, "before": "0" * 64, "after": "1" * 64}
    journal = {"schema": 1, "change": "0" * 16, "action": "apply", "phase": "switching", "steps": [step]}
    if key in step:
        step[key] = wrong  # type: ignore[assignment]
    else:
        journal[key] = wrong if wrong else 7
    (site / DIRECTORY / "journal.json").write_text(json.dumps(journal))
    before = tree(site)
    assert status(site, ALL).interrupted
    for act in (apply, revert):
        with pytest.raises(HostError, match=r"journal\.json: cannot be read or is not ours"):
            act(site, ALL)
    assert tree(site) == before


def test_state_of_a_newer_sparkfleet_is_refused(site: Path) -> None:
    apply(site, ALL)
    state = json.loads((site / DIRECTORY / "state.json").read_text())
    (site / DIRECTORY / "state.json").write_text(json.dumps({**state, "schema": 99}))
    with pytest.raises(HostError, match="newer sparkfleet"):
        status(site, ALL)


def test_kept_files_can_be_read_by_the_guard(site: Path) -> None:
    old = os.umask(0o077)
    try:
        apply(site, ALL)
    finally:
        os.umask(old)
    for path in [site / DIRECTORY, *(site / DIRECTORY).rglob("*")]:
        assert path.stat().st_mode & 0o004, path


def _apply_in_a_process(site: Path, results: "multiprocessing.Queue[tuple[str, ...]]") -> None:
    results.put(apply(site, ALL).changed)


def test_many_applies_at_once_change_once(site: Path) -> None:
    context = multiprocessing.get_context("fork")
    results: multiprocessing.Queue[tuple[str, ...]] = context.Queue()
    processes = [context.Process(target=_apply_in_a_process, args=(site, results)) for _ in range(6)]
    for process in processes:
        process.start()
    changed = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
    assert sorted(len(paths) for paths in changed) == [0, 0, 0, 0, 0, 2]
    assert status(site, ALL).converged


def test_lock_that_is_kept_is_said(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sparkfleet.agent.patching import site_lock

    monkeypatch.setattr(site_lock, "PATIENCE", 0.1)
    with site_lock.held(site, shared=True):
        assert not status(site, ALL).converged  # readers do not keep readers out
        with pytest.raises(HostError, match="another run"):
            apply(site, ALL)


@contextlib.contextmanager
def _mounted(place: Path, *options: str):  # type: ignore[no-untyped-def]
    place.mkdir(exist_ok=True)
    if os.geteuid() != 0 or subprocess.run(["mount", *options, place], capture_output=True).returncode != 0:
        pytest.skip("mounting a file system needs root")
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


def test_read_only_file_system(tmp_path: Path) -> None:
    with _mounted(tmp_path / "fs", "-t", "tmpfs", "tmpfs") as place:
        site = engine(place / "site")
        subprocess.run(["mount", "-o", "remount,ro", place], check=True)
        assert set(states(site).values()) == {"pristine"}
        before = tree(site)
        with pytest.raises(HostError, match=r"Read-only file system.*Nothing was changed"):
            apply(site, ALL)
        assert tree(site) == before
        subprocess.run(["mount", "-o", "remount,rw", place], check=True)
        apply(site, ALL)
        subprocess.run(["mount", "-o", "remount,ro", place], check=True)
        assert apply(site, ALL).converged  # nothing to write, nothing written
        with pytest.raises(HostError, match=r"Read-only file system.*Nothing was changed"):
            revert(site, ALL)
        assert status(site, ALL).converged


def test_full_disk(tmp_path: Path) -> None:
    with _mounted(tmp_path / "fs", "-t", "tmpfs", "-o", "size=256k,nr_inodes=200", "tmpfs") as place:
        site = engine(place / "site")
        refused = 0
        for room in range(0, 256 * 1024, 4096):
            filler = place / "filler"
            filler.unlink(missing_ok=True)
            before = tree(site)
            with contextlib.suppress(OSError):
                filler.write_bytes(b"x" * (256 * 1024))  # all that is left
            os.truncate(filler, max(0, filler.stat().st_size - room))
            try:
                apply(site, ALL)
            except HostError as error:
                refused += 1
                assert "No space left on device" in str(error) and "Nothing was changed" in str(error)
                assert tree(site) == before
            else:
                break
        assert refused >= 3  # it failed at several different writes, not only at the first
        filler.unlink()
        assert status(site, ALL).converged
