"""Released prefixes in a Parquet file: what is in it, what is not, and what damage does."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numbered_logs import Scene, scene, seeded
from refusals import refusal

from quorum_rl.privacy.planner import ReleasePlan
from quorum_rl.release import read_released, save_released, storage
from quorum_rl.release.storage import METADATA_KEY
from quorum_rl.types import Released, Transition


@pytest.fixture(scope="module", name="released")
def _released() -> Released:
    """Prefixes of 2, 1 and 3 steps with two numbers per observation."""
    rng = np.random.default_rng(0)
    observation = rng.normal(size=(6, 2)).astype(np.float32)
    columns = (
        observation,
        rng.integers(3, size=6).astype(np.int32),
        rng.normal(size=6).astype(np.float32),
        observation + 1,
        np.array([False, True, False, False, False, False]),
        np.array([False, False, True, False, False, True]),
    )
    return Released(Transition(*columns), np.array([0, 2, 3, 6]), 2, 3, 50)  # type: ignore[arg-type]


def assert_same(one: Released, other: Released) -> None:
    np.testing.assert_array_equal(one.offsets, other.offsets)
    for left, right in zip(one.transitions, other.transitions, strict=True):
        np.testing.assert_array_equal(left, right)
        assert np.asarray(left).dtype == np.asarray(right).dtype
    assert (one.observation_size, one.action_count, one.horizon) == (
        other.observation_size,
        other.action_count,
        other.horizon,
    )


def message(path: Path) -> str:
    said = refusal(read_released, path)
    assert str(path) in said
    return said


def test_what_is_saved_is_read_back(released: Released, tmp_path: Path) -> None:
    save_released(released, tmp_path / "some.parquet")
    assert_same(read_released(tmp_path / "some.parquet"), released)


def test_an_empty_release_is_saved_and_read_back(released: Released, tmp_path: Path) -> None:
    nothing = replace(
        released,
        transitions=Transition(*(np.asarray(c)[:0] for c in released.transitions)),  # type: ignore[arg-type]
        offsets=np.array([0]),
    )
    save_released(nothing, tmp_path / "nothing.parquet")
    assert_same(read_released(tmp_path / "nothing.parquet"), nothing)


def test_a_real_release_is_saved_and_read_back(
    many: Scene, plan: ReleasePlan, path: Path, tmp_path: Path
) -> None:
    released = seeded(many, plan, path)
    assert len(released) > 2
    save_released(released, tmp_path / "real.parquet")
    assert_same(read_released(tmp_path / "real.parquet"), released)


def test_a_file_has_a_row_per_transition_that_anything_can_read(
    released: Released, tmp_path: Path
) -> None:
    save_released(released, tmp_path / "some.parquet", {"ledger": "abc"})
    table = pq.read_table(tmp_path / "some.parquet")
    assert table.column("prefix").to_pylist() == [0, 0, 1, 2, 2, 2]
    assert table.column("step").to_pylist() == [0, 1, 0, 0, 1, 2]
    about = json.loads(table.schema.metadata[METADATA_KEY])
    assert about["facts"] == {"ledger": "abc"}


def test_nothing_in_a_file_is_about_experts(
    sharp: ReleasePlan, research: Path, tmp_path: Path
) -> None:
    """The file of a release by experts 0 to 39 is the very file of those by experts 40 to 79."""
    few = scene([5] * 40)
    shifted = replace(
        few.log, episodes=few.log.episodes._replace(expert=few.log.episodes.expert + 40)
    )
    files = []
    for number, log in enumerate((few.log, shifted)):
        released = seeded(Scene(scene([5] * 80).experts, log), sharp, research)
        assert len(released) > 5
        save_released(released, tmp_path / f"{number}.parquet")
        files.append((tmp_path / f"{number}.parquet").read_bytes())
    assert files[0] == files[1]
    assert pq.read_schema(tmp_path / "0.parquet").names == [
        "prefix",
        "step",
        "observation",
        "action",
        "reward",
        "next_observation",
        "terminated",
        "truncated",
    ]


def edited(path: Path, **changed: object) -> None:
    """The file with facts of its metadata changed, or taken out where they are None."""
    table = pq.read_table(path)
    about = json.loads(table.schema.metadata[METADATA_KEY]) | changed
    about = {name: fact for name, fact in about.items() if fact is not None}
    pq.write_table(table.replace_schema_metadata({METADATA_KEY: json.dumps(about)}), path)


@pytest.mark.parametrize(
    "changed", [{"facts": {"iterations": 4}}, {"horizon": 51}, {"action_count": 4}, {"sha256": ""}]
)
def test_a_fact_that_was_changed_is_found_out(
    changed: dict[str, object], released: Released, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "some.parquet"
    save_released(released, path, {"iterations": 3})
    edited(path, **changed)
    assert "changed after it was written, by the digest" in message(path)
    monkeypatch.setattr(storage, "_check_digest", lambda *_: None)  # the planted bug
    read_released(path)


def test_a_number_that_was_changed_is_found_out_whoever_wrote_the_pages(
    released: Released, tmp_path: Path
) -> None:
    """Their checksums are written anew by any program."""
    path = tmp_path / "some.parquet"
    save_released(released, path)
    table = pq.read_table(path)
    actions = pa.array([1 - table["action"][0].as_py(), *table["action"].to_pylist()[1:]])
    table = table.set_column(3, table.schema.field("action"), actions.cast(pa.int32()))
    pq.write_table(table, path)
    assert "changed after it was written, by the digest" in message(path)


def _later(table: Any) -> Any:
    about = {**json.loads(table.schema.metadata[METADATA_KEY]), "version": 3}
    return table.replace_schema_metadata({METADATA_KEY: json.dumps(about)})


OTHERS: dict[str, Callable[[Any], Any]] = {
    "give a file that 'quorum release' wrote": lambda _: pa.table({"step": [0, 1]}),
    "its columns": lambda table: table.drop_columns(["reward"]),
    "version 3": _later,
    "cannot be read": lambda table: table.slice(1),
}


@pytest.mark.parametrize("said", OTHERS)
def test_another_file_than_one_of_this_version_is_refused(
    said: str, released: Released, tmp_path: Path
) -> None:
    path = tmp_path / "some.parquet"
    save_released(released, path)
    pq.write_table(OTHERS[said](pq.read_table(path)), path)
    assert said in message(path)


def test_an_interrupted_write_leaves_the_old_file(released: Released, tmp_path: Path) -> None:
    path = tmp_path / "some.parquet"
    save_released(released, path)
    with pytest.raises(TypeError):
        save_released(released, path, {"not plain": object()})
    assert_same(read_released(path), released)
    assert [file.name for file in tmp_path.iterdir()] == ["some.parquet"]
