"""What is written is what is read, for any ragged shape; and a file is mapped, not read."""

import mmap
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from quorum_rl.errors import QuorumError
from quorum_rl.logs import (
    Declared,
    Demonstrations,
    from_episodes,
    from_step_arrays,
    open_demonstrations,
    read_minari,
    read_table,
    save_demonstrations,
    to_step_arrays,
    write_minari,
    write_table,
)

FEW = settings(max_examples=15, derandomize=True)


@st.composite
def ragged(draw: st.DrawFn) -> Demonstrations:
    """Experts with gaps in their numbers, 1 to 4 episodes each, of 1 to 7 steps."""
    episodes = draw(st.lists(st.tuples(st.integers(-3, 5), st.integers(1, 7)), max_size=8))
    episodes = episodes or [(0, 1)]
    experts, lengths = zip(*episodes, strict=True)
    size, actions = draw(st.integers(1, 3)), draw(st.sampled_from([1, 2, 300]))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    ends = rng.integers(1, 4, len(lengths))
    return from_episodes(
        Declared(
            actions,
            size,
            horizon=7,
            world="W",
            world_params={"g": 1.5},
            early_truncation_is_public=True,
            reproducible=True,
        ),
        expert=experts,
        length=lengths,
        observations=rng.normal(size=(sum(lengths) + len(lengths), size)).astype(np.float32),
        actions=rng.integers(actions, size=sum(lengths)),
        rewards=rng.normal(size=sum(lengths)),
        terminated=ends & 1,
        truncated=ends & 2,
    )


def assert_same(first: Demonstrations, second: Demonstrations) -> None:
    assert first.declared == second.declared
    np.testing.assert_array_equal(first.episodes.expert, second.episodes.expert)
    assert len(first) == len(second)
    for episode, other in zip(first, second, strict=True):
        for name, value in episode._asdict().items():
            np.testing.assert_array_equal(value, getattr(other, name), name)


@FEW
@given(ragged())
def test_a_file_gives_back_the_same(
    tmp_path_factory: pytest.TempPathFactory, demonstrations: Demonstrations
) -> None:
    path = tmp_path_factory.mktemp("d") / "log.arrow"
    save_demonstrations(demonstrations, path)
    again = open_demonstrations(path)
    assert_same(demonstrations, again)
    assert_same(again, again.compacted())


@FEW
@given(ragged(), st.sampled_from([".parquet", ".csv"]))
def test_a_table_gives_back_the_same(
    tmp_path_factory: pytest.TempPathFactory, demonstrations: Demonstrations, ending: str
) -> None:
    path = tmp_path_factory.mktemp("d") / f"log{ending}"
    write_table(demonstrations, path)
    assert_same(demonstrations, read_table(path, demonstrations.declared))
    if ending == ".parquet":
        assert_same(demonstrations, read_table(path))


@FEW
@given(ragged())
def test_step_arrays_give_back_the_same(demonstrations: Demonstrations) -> None:
    arrays = to_step_arrays(demonstrations)
    assert_same(demonstrations, from_step_arrays(arrays, demonstrations.declared))


@FEW
@given(ragged(), st.randoms(use_true_random=False))
def test_a_view_compacted_or_saved_holds_its_episodes_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, demonstrations: Demonstrations, random: Any
) -> None:
    chosen = [index for index in range(len(demonstrations)) if random.random() < 0.5]
    view = demonstrations.select(np.array(chosen, dtype=np.int64))
    compact = view.compacted()
    assert_same(view, compact)
    assert len(compact.columns.actions) == view.transition_count
    assert len(compact.columns.observations) == view.transition_count + len(view)
    path = tmp_path_factory.mktemp("d") / "view.arrow"
    save_demonstrations(view, path)
    assert_same(view, open_demonstrations(path))


def test_compacting_what_is_compact_copies_nothing(log: Demonstrations) -> None:
    for column, same in zip(log.columns, log.compacted().columns, strict=True):
        assert np.shares_memory(column, same)


def test_minari_gives_back_the_same(
    log: Demonstrations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    minari = pytest.importorskip("minari", reason="Minari is an optional extra")
    pytest.importorskip("h5py", reason="Minari's HDF5 storage needs h5py")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    write_minari(log, "cartpole/experts-v0")
    assert_same(log, read_minari("cartpole/experts-v0"))
    assert_same(log, read_minari("cartpole/experts-v0", Declared(2, 4, log.declared.horizon)))
    with pytest.raises(
        QuorumError, match=r"experts-v0' was exported with p_min 0\.02, but p_min 0\.1 is declared"
    ):
        read_minari("cartpole/experts-v0", replace(log.declared, p_min=0.1))
    theirs = minari.load_dataset("cartpole/experts-v0")
    assert list(minari.list_local_datasets()) == ["cartpole/experts-v0"]
    assert theirs.total_steps == log.transition_count
    for ours, episode in zip(log, theirs, strict=True):
        np.testing.assert_array_equal(ours.observations, episode.observations)
        np.testing.assert_array_equal(ours.actions, episode.actions)
        assert episode.terminations.sum() + episode.truncations.sum() >= 1
    with pytest.raises(QuorumError, match="exists: delete it or raise the version"):
        write_minari(log, "cartpole/experts-v0")
    with pytest.raises(QuorumError, match="Minari does not allow the name 'experts'"):
        write_minari(log, "experts")


def test_a_minari_dataset_of_others_needs_an_expert_for_every_episode(
    declared: Declared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    minari = pytest.importorskip("minari", reason="Minari is an optional extra")
    pytest.importorskip("h5py", reason="Minari's HDF5 storage needs h5py")
    import gymnasium

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    collector = minari.DataCollector(
        gymnasium.make("CartPole-v1", max_episode_steps=declared.horizon)
    )
    for seed in range(3):
        collector.reset(seed=seed)
        for action in np.random.default_rng(seed).integers(2, size=declared.horizon):
            _, _, terminated, truncated, _ = collector.step(action)
            if terminated or truncated:
                break
    with pytest.warns(UserWarning, match="is set to None"):
        dataset = collector.create_dataset("theirs-v0")
    with pytest.raises(QuorumError, match="'theirs-v0' does not say what is declared: give"):
        read_minari("theirs-v0")
    with pytest.raises(QuorumError, match="episode 0: its metadata has no 'expert'"):
        read_minari("theirs-v0", declared)
    dataset.storage.update_episode_metadata([{"doctor": name} for name in ("b", "a", "b")])
    with pytest.raises(
        QuorumError,
        match=r"'theirs-v0', episode 1, step 19: the episode is truncated after 20 steps, but the "
        r"declared horizon is 21: declare the time limit .* early_truncation_is_public",
    ):
        read_minari("theirs-v0", replace(declared, horizon=21), expert_key="doctor")
    demonstrations = read_minari("theirs-v0", declared, expert_key="doctor")
    assert demonstrations.episodes.expert.tolist() == [0, 1, 1]
    for ours, index in zip(demonstrations, (1, 0, 2), strict=True):
        np.testing.assert_array_equal(ours.observations, dataset[index].observations)
        np.testing.assert_array_equal(ours.actions, dataset[index].actions)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"action_count": 3}, "action_count 2, but action_count 3 is declared"),
        ({"observation_size": 5}, "observation_size 4, but observation_size 5 is declared"),
        ({"horizon": 21}, "horizon 20, but horizon 21 is declared"),
        ({"p_min": 0.05}, "p_min 0.02, but p_min 0.05 is declared"),
        ({"smoothing": "uniform"}, "smoothing greedy, but smoothing uniform is declared"),
        ({"world": "Acrobot"}, "world CartPole, but world Acrobot is declared"),
    ],
)
def test_declaring_other_than_the_file_says_is_refused(
    log: Demonstrations, tmp_path: Path, facts: dict[str, Any], message: str
) -> None:
    smoothed = replace(log.declared, smoothing="greedy")
    write_table(Demonstrations(smoothed, log.columns, log.episodes), tmp_path / "log.parquet")
    assert read_table(tmp_path / "log.parquet", smoothed).declared == smoothed
    with pytest.raises(QuorumError, match=r"log\.parquet' was exported with " + message):
        read_table(tmp_path / "log.parquet", replace(smoothed, **facts))


def test_what_the_file_says_holds_and_the_reader_adds_what_it_leaves_open(
    log: Demonstrations, tmp_path: Path
) -> None:
    path, public = tmp_path / "log.parquet", Declared(2, 4, 20)
    write_table(log, path)
    assert read_table(path, public).declared == log.declared
    public_ends = replace(public, early_truncation_is_public=True)
    added = replace(log.declared, early_truncation_is_public=True)
    assert read_table(path, public_ends).declared == added

    write_table(Demonstrations(public, log.columns, log.episodes), path)
    promised = replace(public, p_min=0.1, smoothing="greedy", world="CartPole")
    assert read_table(path, promised).declared == promised


def test_a_floor_cannot_be_declared_for_experts_that_acted_without_one(
    log: Demonstrations, tmp_path: Path
) -> None:
    unchanged = replace(log.declared, p_min=None, smoothing="none")
    write_table(Demonstrations(unchanged, log.columns, log.episodes), tmp_path / "log.parquet")
    with pytest.raises(QuorumError, match=r"exported with p_min None, but p_min 0\.02 is declared"):
        read_table(tmp_path / "log.parquet", log.declared)


def test_an_open_file_is_mapped_into_memory_and_not_read(
    log: Demonstrations, tmp_path: Path
) -> None:
    save_demonstrations(log, tmp_path / "log.arrow")
    before = pa.total_allocated_bytes()
    again = open_demonstrations(tmp_path / "log.arrow")
    maps = Path("/proc/self/maps")
    for array in again.columns:
        assert not array.flags.owndata
        assert not array.flags.writeable
        if maps.exists():
            assert _mapped_file(maps.read_text(), array.ctypes.data).endswith("log.arrow")
    assert pa.total_allocated_bytes() - before < mmap.PAGESIZE


def _mapped_file(maps: str, address: int) -> str:
    for line in maps.splitlines():
        start, _, end = line.split()[0].partition("-")
        if int(start, 16) <= address < int(end, 16):
            return line
    return ""


def test_a_file_is_readable_by_its_owner_only_and_leaves_nothing_beside_it(
    log: Demonstrations, tmp_path: Path
) -> None:
    save_demonstrations(log, tmp_path / "log.arrow")
    write_table(log, tmp_path / "log.parquet")
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["log.arrow", "log.parquet"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_nothing_is_left_half_written(
    log: Demonstrations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "log.parquet").write_text("the old one")

    def break_down(*_: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(Demonstrations, "transitions", break_down)
    with pytest.raises(QuorumError, match="cannot be written: disk full"):
        write_table(log, tmp_path / "log.parquet")
    assert [file.name for file in tmp_path.iterdir()] == ["log.parquet"]
    assert (tmp_path / "log.parquet").read_text() == "the old one"


def test_the_repr_shows_what_was_declared_and_nothing_private(log: Demonstrations) -> None:
    fewer = log.select(np.array([0]))
    assert repr(log) == repr(fewer)
    assert "horizon=20" in repr(log)
    assert "seed" not in repr(log)


def test_importing_the_room_imports_neither_minari_nor_pandas() -> None:
    code = (
        "import sys, quorum_rl.logs; print([m for m in sys.modules if m in ('minari', 'pandas')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
