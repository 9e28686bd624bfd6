"""A file appears whole or not at all."""

from pathlib import Path

import pytest

from quorum_rl.errors import QuorumError
from quorum_rl.files import replacing


def test_a_file_takes_its_name_only_when_the_block_is_done(tmp_path: Path) -> None:
    path = tmp_path / "made.txt"
    path.write_text("old")
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
        assert temporary.parent == path.parent  # or the rename would not be atomic
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def write_half(path: Path, failure: BaseException) -> None:
    with replacing(path) as temporary:
        temporary.write_text("half")
        raise failure


@pytest.mark.parametrize("failure", [RuntimeError("no"), KeyboardInterrupt()])
def test_a_block_that_fails_leaves_nothing_behind(tmp_path: Path, failure: BaseException) -> None:
    path = tmp_path / "made.txt"
    with pytest.raises(type(failure)):
        write_half(path, failure)
    assert list(tmp_path.iterdir()) == []


def test_a_failure_of_the_disk_is_told_to_the_user(tmp_path: Path) -> None:
    path = tmp_path / "made.txt"
    with pytest.raises(QuorumError, match=r"made\.txt.* cannot be written: .*No space left"):
        write_half(path, OSError(28, "No space left on device"))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_or_a_name_that_is_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(QuorumError, match="cannot be written"), replacing(tmp_path / "no" / "file"):
        pass
    (tmp_path / "folder").mkdir()
    with (
        pytest.raises(QuorumError, match="folder' cannot be written"),
        replacing(tmp_path / "folder") as temporary,
    ):
        temporary.write_text("x")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
