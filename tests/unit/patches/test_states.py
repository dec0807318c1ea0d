"""The state of a patch: from versions, records, signs and edits, each case that there is."""

from dataclasses import replace
from pathlib import Path

import pytest

from sparkfleet.agent.errors import HostError
from sparkfleet.agent.patching import Row, Sign, apply, revert, status

from .sites import ARCH, FILES, KERNEL, MODEL, SHARED, engine, install, patch, patch_set, precedence, target

EDIT = ("    if cap == 120:\n", "    if cap in (120, 121):\n")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return engine(tmp_path)


def only(site: Path, *patches: object, **versions: str) -> Row:
    (row,) = status(site, patch_set(*patches, **versions)).rows  # type: ignore[arg-type]
    return row


def test_upstreamed_by_what_the_file_has(site: Path) -> None:
    sign = Sign("cap == 120", True, "engine 1.0")
    row = only(site, patch("P1", target(KERNEL, EDIT, signs=(sign,))))
    assert (row.state, row.reason) == ("upstreamed", "engine 1.0")


def test_upstreamed_by_what_the_file_lacks(site: Path) -> None:
    assert only(site, patch("P1", target(KERNEL, EDIT, signs=(Sign("cvt.rn", False, "gone"),)))).state == "upstreamed"
    assert only(site, patch("P1", target(KERNEL, EDIT, signs=(Sign("cap ==", False, "gone"),)))).state == "pristine"


def test_signs_are_read_in_what_was_shipped_not_in_what_we_wrote(site: Path) -> None:
    signed = patch_set(patch("P1", target(KERNEL, EDIT, signs=(Sign("121", True, "engine 2.0"),))))
    assert status(site, signed).rows[0].state == "pristine"
    apply(site, signed)
    assert status(site, signed).rows[0].state == "applied"


def test_not_applicable_without_the_text_that_says_it_is_the_file(site: Path) -> None:
    row = only(site, patch("P1", target(KERNEL, EDIT, when="is_sm12x")))
    assert row.state == "not-applicable" and "no `is_sm12x`" in row.reason


def test_not_applicable_when_the_release_has_no_such_file(site: Path) -> None:
    row = only(site, patch("P1", target("engine/moved.py", EDIT)))
    assert row.state == "not-applicable" and row.reason == "engine 1.0 has no such file"


def test_a_file_that_no_record_lists_is_not_touched(site: Path) -> None:
    """A copy of the target that lies about somewhere is a decoy."""
    (site / "decoy").mkdir()
    (site / "decoy/kernel.py").write_text(FILES[KERNEL])
    decoyed = patch_set(patch("P1", target("decoy/kernel.py", EDIT)))
    row = status(site, decoyed).rows[0]
    assert row.state == "conflict" and "RECORD of engine 1.0 does not list it" in row.reason
    with pytest.raises(HostError, match="P1 is conflict"):
        apply(site, decoyed)
    assert (site / "decoy/kernel.py").read_text() == FILES[KERNEL]


RECORD = "engine-1.0.dist-info/RECORD"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("engine/", "./engine/"),
        ("engine/", "engine\\"),
        ("\n", "\r"),
        ("engine/kernel.py,", '"engine/kernel.py",'),
        ("engine/kernel.py", "\ufeffengine/kernel.py"),
    ],
)
def test_a_record_that_is_written_another_way_is_understood(site: Path, old: str, new: str) -> None:
    record = site / RECORD
    record.write_bytes(record.read_text().replace(old, new).encode())
    wanted = patch_set(ARCH)
    assert not status(site, wanted).converged and status(site, wanted).rows[0].state == "pristine"
    assert apply(site, wanted).converged and revert(site, wanted).changed == (KERNEL,)


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ("", "lists no file of the package"),
        ("/abs/engine/kernel.py,,\n", "lists no file of the package"),
        ("../site/engine/kernel.py,,\n", "lists no file of the package"),
        ("engine/other.py,,\n", "the file is there, but the RECORD of engine 1.0 does not list it"),
        ("__editable__.engine-1.0.pth,,\nengine-1.0.dist-info/RECORD,,\n", "editable install"),
    ],
)
def test_a_record_that_does_not_list_the_file_is_a_conflict(site: Path, record: str, says: str) -> None:
    (site / RECORD).write_text(record)
    before = (site / KERNEL).read_bytes()
    row = only(site, ARCH)
    assert row.state == "conflict" and says in row.reason and "apply again" in row.reason
    with pytest.raises(HostError, match=r"P1 is conflict .* Nothing was changed"):
        apply(site, patch_set(ARCH))
    assert (site / KERNEL).read_bytes() == before


def test_an_editable_install_of_any_tool_is_a_conflict(site: Path) -> None:
    for path in FILES:
        (site / path).unlink()
    (site / RECORD).write_text("engine.pth,,\nengine-1.0.dist-info/RECORD,,\n")
    (site / RECORD).with_name("direct_url.json").write_text('{"url": "file:///src", "dir_info": {"editable": true}}')
    assert only(site, ARCH).state == "conflict" and "editable install" in only(site, ARCH).reason


def test_not_applicable_when_nothing_is_installed(site: Path) -> None:
    row = only(site, patch("P1", target(KERNEL, EDIT, distribution="other")))
    assert row.state == "not-applicable" and row.reason == "other is not installed"


def test_another_shape_is_a_conflict_and_not_a_guess(site: Path) -> None:
    row = only(site, patch("P1", target(KERNEL, ("    if cap == 119:\n", "x\n"))))
    assert row.state == "conflict" and "another shape" in row.reason and "found it 0 times" in row.reason
    with pytest.raises(HostError, match="P1 is conflict"):
        apply(site, patch_set(patch("P1", target(KERNEL, ("    if cap == 119:\n", "x\n")))))


def test_of_two_places_the_one_that_fits_is_told(site: Path) -> None:
    moved = patch("P1", target(MODEL, EDIT, when="def arch("), target(KERNEL, EDIT, when="def arch("))
    assert (only(site, moved).target, only(site, moved).state) == (KERNEL, "pristine")


@pytest.mark.parametrize("kind", ["not-needed", "refused"])
def test_not_needed_unless_asked_for(site: Path, kind: str) -> None:
    row = only(site, patch("P1", *ARCH.targets, wanted=False, kind=kind))
    assert (row.state, row.reason) == ("not-needed", "reason P1")
    asked = patch_set(patch("P1", *ARCH.targets, kind=kind))
    assert status(site, asked).rows[0].state == "pristine" and not status(site, asked).converged
    assert apply(site, asked).converged


def test_an_optional_patch_that_is_not_wanted_does_not_stop_convergence(site: Path) -> None:
    report = status(site, patch_set(patch("P1", *ARCH.targets, wanted=False, kind="optional")))
    assert report.rows[0].state == "pristine" and report.converged


# --- two owners of one path: base 1.0, then over it cu13 1.0 ------------------------------------------------------

BASE = {SHARED: "FROM = 'base'\nARCHS = ['120']\n", "shared/same.py": "S = 1\n", "shared/lib.so": b"\x7fELF base"}
CU13 = {SHARED: "FROM = 'cu13'\nARCHS = ['120']\n", "shared/same.py": "S = 1\n", "shared/lib.so": b"\x7fELF cu13!"}
ARCHS = ("ARCHS = ['120']\n", "ARCHS = ['120', '121']\n")
P9 = patch("P9", target(SHARED, ARCHS, distribution="base"), target(SHARED, ARCHS, distribution="cu13"))
BOTH = patch_set(precedence("cu13", "base"), P9, base="1.0", cu13="1.0")


def test_winner_last(tmp_path: Path) -> None:
    install(tmp_path, "base", "1.0", BASE)
    install(tmp_path, "cu13", "1.0", CU13)
    first, second = status(tmp_path, BOTH).rows
    assert first.state == "applied" and "all 2 files that differ are cu13's" in first.reason
    assert (second.state, second.distribution) == ("pristine", "cu13")
    assert apply(tmp_path, BOTH).converged
    assert (tmp_path / SHARED).read_text() == "FROM = 'cu13'\nARCHS = ['120', '121']\n"
    assert [row.state for row in status(tmp_path, BOTH).rows] == ["applied", "applied"]
    revert(tmp_path, BOTH)
    assert (tmp_path / SHARED).read_text() == CU13[SHARED]


def test_the_right_order_is_no_change_of_ours(tmp_path: Path) -> None:
    """Winner last where nobody asked: nothing of ours is on the files, so there is nothing to take back."""
    install(tmp_path, "base", "1.0", BASE)
    install(tmp_path, "cu13", "1.0", CU13)
    unasked = patch_set(replace(precedence("cu13", "base"), wanted=False), base="1.0", cu13="1.0")
    assert status(tmp_path, unasked).rows[0].state == "applied" and status(tmp_path, unasked).converged


def test_loser_last_cannot_be_cured_by_editing(tmp_path: Path) -> None:
    install(tmp_path, "cu13", "1.0", CU13)
    install(tmp_path, "base", "1.0", BASE)
    first, second = status(tmp_path, BOTH).rows
    assert first.state == "pristine" and "pip install --force-reinstall --no-deps cu13==1.0" in first.reason
    assert (second.state, second.distribution) == ("pristine", "base")
    with pytest.raises(HostError, match=r"P8 is pristine .* 2 of 2 files are base's"):
        apply(tmp_path, BOTH)


def test_loser_reinstalled_over_a_patched_winner(tmp_path: Path) -> None:
    install(tmp_path, "base", "1.0", BASE)
    install(tmp_path, "cu13", "1.0", CU13)
    apply(tmp_path, BOTH)
    install(tmp_path, "base", "1.0", BASE)
    assert [row.state for row in status(tmp_path, BOTH).rows] == ["pristine", "pristine"]
    install(tmp_path, "cu13", "1.0", CU13)
    assert apply(tmp_path, BOTH).converged


def test_compiled_library_of_the_loser_is_seen(tmp_path: Path) -> None:
    install(tmp_path, "base", "1.0", BASE)
    install(tmp_path, "cu13", "1.0", CU13)
    (tmp_path / "shared/lib.so").write_bytes(b"\x7fELF base")
    assert status(tmp_path, BOTH).rows[0].state == "pristine"
    (tmp_path / "shared/lib.so").write_bytes(b"\x7fELF cu13?")
    assert status(tmp_path, BOTH).rows[0].state == "conflict"


def test_winner_uninstalled_takes_the_shared_files_with_it(tmp_path: Path) -> None:
    install(tmp_path, "base", "1.0", BASE)
    install(tmp_path, "cu13", "1.0", CU13)
    for path in CU13:
        (tmp_path / path).unlink()
    for path in (tmp_path / "cu13-1.0.dist-info").iterdir():
        path.unlink()
    (tmp_path / "cu13-1.0.dist-info").rmdir()
    alone = patch_set(precedence("cu13", "base"), P9, base="1.0")
    first, second = status(tmp_path, alone).rows
    assert (first.state, second.state) == ("missing", "missing")
    with pytest.raises(HostError, match="P8 is missing"):
        apply(tmp_path, alone)


def test_loser_alone(tmp_path: Path) -> None:
    install(tmp_path, "base", "1.0", BASE)
    row, _ = status(tmp_path, patch_set(precedence("cu13", "base"), P9, base="1.0")).rows
    assert row.state == "pristine" and "cu13 is not installed" in row.reason


def test_owners_of_different_versions_are_a_conflict(tmp_path: Path) -> None:
    install(tmp_path, "base", "1.0", BASE)
    install(tmp_path, "cu13", "1.1", CU13)
    row, _ = status(tmp_path, patch_set(precedence("cu13", "base"), P9, base="1.0", cu13="1.1")).rows
    assert row.state == "conflict" and "cu13 1.1 over base 1.0" in row.reason


def test_records_that_list_nothing_are_not_called_mended(tmp_path: Path) -> None:
    install(tmp_path, "base", "1.0", BASE)
    install(tmp_path, "cu13", "1.0", CU13)
    (tmp_path / "cu13-1.0.dist-info/RECORD").write_text("")
    row = only(tmp_path, precedence("cu13", "base"), base="1.0", cu13="1.0")
    assert row.state == "conflict" and "RECORD of cu13 1.0 lists no file" in row.reason


def test_nothing_shared_is_upstreamed(tmp_path: Path) -> None:
    install(tmp_path, "base", "1.0", {"base/a.py": ""})
    install(tmp_path, "cu13", "1.0", {"cu13/a.py": ""})
    assert only(tmp_path, precedence("cu13", "base"), base="1.0", cu13="1.0").state == "upstreamed"
