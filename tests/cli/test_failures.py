"""Failures as a user meets them: one sentence, exit status 2, nothing lost or half written."""

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import Quorum, forget, networks

from quorum_rl.budget import read_ledger
from quorum_rl.pipeline import training_stage
from quorum_rl.pipeline.folder import RunFolder

DECLARED = ("--actions", "2", "--observations", "4", "--horizon", "8")
BUDGET = ("--epsilon", "20", "--delta", "1e-3")
SMALL = ("--method", "selective", "--minimum-experts", "136", "--hidden", "4",
         "--private-steps", "300", "--sampling-rate",
         "0.1", "--transitions-per-expert", "2", "--accept", "one-expert-each", "floor-everywhere",
         "--seed", "1")  # fmt: skip


@pytest.fixture
def table(log: Path, quorum: Quorum) -> Path:
    path = log.with_suffix(".parquet")
    quorum("demos", "export", log, "--out", path)
    return path


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real disk of one megabyte."""
    path = tmp_path / "disk"
    path.mkdir()
    mount = shutil.which("mount")
    command = [mount or "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(path)]
    if mount is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a small disk here")
    yield path
    # Lazily: a library may hold the file that it could not write until it is collected.
    subprocess.run(["umount", "--lazy", str(path)], check=True)


# The disk.


def test_on_a_full_disk_nothing_is_charged_and_nothing_is_released(
    log: Path, experts_file: Path, small_disk: Path, quorum: Quorum
) -> None:
    (small_disk / "ballast").write_bytes(bytes(900_000))
    fit = ("fit", log, experts_file, *BUDGET, *SMALL, "--folder", small_disk / "run")
    assert "MiB are free" in quorum.refused_for_free(log.parent, *fit)


def test_what_does_not_fit_on_a_disk_leaves_no_half_file(
    table: Path, small_disk: Path, quorum: Quorum
) -> None:
    (small_disk / "ballast").write_bytes(bytes(1_040_000))
    said = quorum.refused("demos", "import", table, "--out", small_disk / "log.arrow")
    assert "No space left on device" in said
    assert [path.name for path in small_disk.iterdir()] == ["ballast"]


def test_a_disk_that_fills_up_while_training_costs_nothing_but_time(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quorum: Quorum
) -> None:
    """With room again the same command goes on, to the same policy and without paying again."""
    monkeypatch.setattr(training_stage, "SECONDS_BETWEEN_SAVES", 0.0)
    folder, whole = tmp_path / "run", tmp_path / "whole"
    words = ("fit", str(log), *BUDGET, *SMALL, "--folder")

    def full(_path: Path, target: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))

    write = RunFolder.save

    def save_on_a_full_disk(place: RunFolder, *given: Any) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(Path, "replace", full)
            write(place, *given)

    with monkeypatch.context() as patched:
        patched.setattr(RunFolder, "save", save_on_a_full_disk)
        said = quorum.refused(*words, folder)
    assert "No space left on device" in said
    assert "standing.safetensors" in said
    assert sorted(path.name for path in (folder / "private").iterdir()) == ["keys.json", "name"]
    quorum(*words, folder)
    forget(log)
    quorum(*words, whole)
    assert len(read_ledger(folder / "ledger.jsonl").charges) == 1
    assert networks(folder) == networks(whole)


@pytest.mark.parametrize("folder", ["a file/run", "/sys/run"])
def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_charged(
    folder: str, log: Path, experts_file: Path, tmp_path: Path, quorum: Quorum
) -> None:
    if folder.startswith("/sys") and not Path("/sys/kernel").is_dir():
        pytest.skip("there is no /sys, which not even root can write to")
    (tmp_path / "a file").write_text("")
    place = str(tmp_path / folder)  # an absolute folder stays what it is
    fit = ("fit", log, experts_file, *BUDGET, *SMALL, "--folder", place)
    assert f"{place!r} cannot be made" in quorum.refused_for_free(tmp_path, *fit)


def test_an_error_of_the_system_that_nobody_expected_is_a_sentence_too(
    monkeypatch: pytest.MonkeyPatch, quorum: Quorum
) -> None:
    def broken(*_: Any) -> Any:
        raise OSError(errno.EIO, os.strerror(errno.EIO), "/a/disk")

    monkeypatch.setattr("quorum_rl.envs.world_names", broken)
    assert quorum.refused("worlds", "list") == "quorum: '/a/disk': Input/output error.\n"


# Files that others wrote.


def test_columns_may_be_called_anything_if_that_is_said(
    table: Path, tmp_path: Path, quorum: Quorum
) -> None:
    read = pq.read_table(table)
    names = {"expert": "desk", "action": "order", **{f"observation_{i}": f"x{i}" for i in range(4)}}
    own = read.rename_columns([names.get(name, name) for name in read.column_names])
    pq.write_table(own.replace_schema_metadata(None), table)
    out = tmp_path / "own.arrow"
    quorum("demos", "import", table, "--out", out, *DECLARED, "--columns", "expert", "desk",
           "action", "order", "observation", "x0,x1,x2,x3")  # fmt: skip
    assert pa.ipc.open_file(str(out)).get_batch(0).num_rows == 137 * 5


# Too late, or too few.


def test_a_refused_fit_can_be_mended_and_started_in_the_same_folder(
    log: Path, experts_file: Path, tmp_path: Path, quorum: Quorum
) -> None:
    """A log that was released from is refused late; what was in the folder before stays."""
    folder, ledger = tmp_path / "runs" / "run", tmp_path / "ledger"
    command = ["fit", str(log), str(experts_file), *SMALL, "--least-released", "1", "--folder"]
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("mine")
    quorum("ledger", "create", ledger, "--epsilon", "1", "--delta", "1e-3")
    quorum.refused_for_free(tmp_path, *command, folder, *BUDGET, "--ledger", ledger)
    quorum(*command, folder, *BUDGET)
    assert (folder / "policy.safetensors").exists()
    quorum.refused_for_free(tmp_path, *command, folder, *BUDGET)
    said = quorum.refused_for_free(tmp_path, *command, tmp_path / "again" / "run", *BUDGET)
    assert "belongs to the ledger" in said
