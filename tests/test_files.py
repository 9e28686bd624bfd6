"""A file appears whole or not at all, and what is damaged is named."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from refusals import refusal

from quorum_rl import files
from quorum_rl.budget import read_certificate, read_ledger
from quorum_rl.errors import QuorumError
from quorum_rl.experts import load_population
from quorum_rl.files import replacing, write_new
from quorum_rl.json_files import made_of, object_of, read_config
from quorum_rl.logs import open_demonstrations, read_columns, read_table
from quorum_rl.policy import Policy
from quorum_rl.release import read_released


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


def flushed_after_naming(folder: Path) -> bool:
    """Whether a folder was flushed whenever a file in it got its name; both ways of writing one."""
    events: list[str] = []
    fsync, replace, link = os.fsync, os.replace, os.link

    def flush(descriptor: int) -> None:
        is_folder = os.path.samestat(os.fstat(descriptor), folder.stat())
        events.append("folder" if is_folder else "file")
        fsync(descriptor)

    def naming(original: Callable[..., None]) -> Callable[..., None]:
        def named(*paths: Any) -> None:
            events.append("name")
            original(*paths)

        return named

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", flush)
        patch.setattr(os, "replace", naming(replace))
        patch.setattr(os, "link", naming(link))
        with replacing(folder / "one") as temporary:
            temporary.write_text("new")
        write_new(folder / "two", b"new")
    return events == ["file", "name", "folder"] * 2


def test_a_file_and_then_its_folder_are_on_the_disk_under_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert flushed_after_naming(tmp_path)
    (tmp_path / "two").unlink()
    monkeypatch.setattr(files, "flush_folder", lambda _: None)  # the planted bug
    assert not flushed_after_naming(tmp_path)


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


READERS = (load_population, open_demonstrations, read_table, read_released, read_columns,
           read_ledger, read_certificate, Policy.load)  # fmt: skip


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__qualname__)
def test_what_is_not_there_or_a_folder_is_named_in_a_sentence(
    read: Callable[[Path], Any], tmp_path: Path
) -> None:
    (tmp_path / "folder.csv").mkdir()
    for name, fault in (("none.csv", "there is no|No such file"), ("folder.csv", "folder|dir")):
        said = refusal(read, tmp_path / name)
        assert str(tmp_path / name) in said
        assert re.search(fault, said)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"\xff", b'{"a": NaN}', b'{"a": 1e999}', b'{"a": 1, "a": 2}', b"{} {}"]
)
def test_two_readers_of_a_json_object_find_the_same_in_it(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"."):
        object_of(content)
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(QuorumError, match=r"config\.json' is damaged .*: make it again with"):
        read_config(tmp_path)


@dataclass(frozen=True)
class Inner:
    name: str


@dataclass(frozen=True)
class Outer:
    score: float
    count: int
    interval: tuple[float, float] | None
    inner: tuple[Inner, ...]


GOOD: dict[str, Any] = {"score": 1, "count": 2, "inner": [{"name": "a", "more": 1}]}


def test_a_dataclass_is_filled_by_the_types_of_its_fields() -> None:
    assert made_of(Outer, GOOD) == Outer(1.0, 2, None, (Inner("a"),))
    assert made_of(Outer, GOOD | {"interval": [0, 1]}).interval == (0.0, 1.0)


@pytest.mark.parametrize(
    "wrong",
    [{"score": "1"}, {"score": True}, {"count": -1}, {"count": 1.0}, {"interval": [1, 0]},
     {"interval": [1]}, {"inner": {}}, {"inner": [{"name": 1}]}, {"inner": [{}]}],
)  # fmt: skip
def test_a_fact_of_another_type_is_named(wrong: dict[str, Any]) -> None:
    named = "name" if wrong.get("inner") else next(iter(wrong))
    with pytest.raises((ValueError, KeyError), match=named):
        made_of(Outer, GOOD | wrong)
