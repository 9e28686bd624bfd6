"""Every way in gives, for every step, what Gymnasium's own `step` returned."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from quorum_rl.logs import (
    Declared,
    Demonstrations,
    StepArrays,
    TableColumns,
    from_padded,
    from_step_arrays,
    read_table,
)


def assert_as_recorded(demonstrations: Demonstrations, recorded: Any) -> None:
    got = demonstrations.transitions(np.arange(demonstrations.transition_count))
    wanted = {name: [getattr(step, name) for step in recorded] for name in got._fields}
    for name, values in got._asdict().items():
        np.testing.assert_array_equal(values, np.array(wanted[name], values.dtype), name)


def step_table(recorded: Any, *, successors: bool = True, lists: bool = False) -> Any:
    columns: dict[str, Any] = {
        name: [getattr(step, name) for step in recorded]
        for name in ("expert", "episode", "step", "action", "reward", "terminated", "truncated")
    }
    for name in ("observation", "next_observation") if successors else ("observation",):
        vectors = np.array([getattr(step, name) for step in recorded])
        if lists:
            columns[name] = pa.array(list(vectors))
        else:
            columns |= {f"{name}_{i}": vectors[:, i] for i in range(vectors.shape[1])}
    return pa.table(columns)


def test_transitions_are_the_steps_gymnasium_took(log: Demonstrations, recorded: Any) -> None:
    assert_as_recorded(log, recorded)
    assert log.experts.tolist() == [3, 7, 12]
    assert [len(log.episodes_of(expert)) for expert in range(3)] == [2, 3, 1]


def test_transitions_of_experts_and_episodes_are_theirs(log: Demonstrations, recorded: Any) -> None:
    for position, expert in enumerate((3, 7, 12)):
        numbers = log.transitions_of(position)
        assert {recorded[number].expert for number in numbers} == {expert}
        within = [
            number
            for episode in log.episodes_of(position)
            for number in range(*log.transition_offsets[[episode, episode + 1]])
        ]
        assert within == list(numbers)


def test_indices_of_any_shape_gather_and_bad_ones_are_refused(
    log: Demonstrations, recorded: Any
) -> None:
    picked = log.transitions([[5, 0], [2, 7]])
    assert picked.observation.shape == (2, 2, 4)
    np.testing.assert_array_equal(picked.next_observation[1, 1], recorded[7].next_observation)
    for bad in (-1, log.transition_count):
        with pytest.raises(IndexError):
            log.transitions([0, bad])


@pytest.mark.parametrize("lists", [False, True])
def test_a_parquet_table_with_rows_in_any_order_is_put_in_order(
    recorded: Any, declared: Declared, tmp_path: Path, lists: bool
) -> None:
    shuffled = np.random.default_rng(1).permutation(len(recorded))
    table = step_table([recorded[index] for index in shuffled], lists=lists)
    pa.parquet.write_table(table, tmp_path / "t.parquet")
    assert_as_recorded(read_table(tmp_path / "t.parquet", declared), recorded)


def test_a_csv_table_with_other_names_and_columns_is_read(
    recorded: Any, declared: Declared, tmp_path: Path
) -> None:
    names = {"expert": "doctor", "observation_0": "x", "observation_1": "v"}
    names |= {"observation_2": "angle", "observation_3": "spin"}
    table = step_table(recorded)
    table = table.append_column("remark", pa.array(["a, b"] * len(recorded)))
    table = table.rename_columns([names.get(name, name) for name in table.column_names])
    pa.csv.write_csv(table, tmp_path / "t.csv")
    columns = TableColumns(expert="doctor", observation=("x", "v", "angle", "spin"))
    assert_as_recorded(read_table(tmp_path / "t.csv", declared, columns), recorded)


def test_experts_named_by_strings_are_numbered_in_sorted_order(
    recorded: Any, declared: Declared, tmp_path: Path
) -> None:
    table = step_table(recorded)
    names = {3: "Bob", 7: "Cy", 12: "Ann"}
    column = pa.array([names[step.expert] for step in recorded])
    table = table.set_column(table.column_names.index("expert"), "expert", column)
    pa.parquet.write_table(table, tmp_path / "t.parquet")
    demonstrations = read_table(tmp_path / "t.parquet", declared)
    assert demonstrations.experts.tolist() == [0, 1, 2]
    assert_as_recorded(demonstrations, sorted(recorded, key=lambda step: names[step.expert]))


def test_without_next_observations_the_time_limit_moves_forward_by_one_step(
    recorded: Any, declared: Declared, tmp_path: Path
) -> None:
    pa.parquet.write_table(step_table(recorded, successors=False), tmp_path / "t.parquet")
    demonstrations = read_table(tmp_path / "t.parquet", declared)
    limit = declared.horizon - 1
    assert demonstrations.declared.horizon == limit
    known = [step for step in recorded if step.step < limit]
    got = demonstrations.transitions(np.arange(demonstrations.transition_count))
    np.testing.assert_array_equal(got.observation, [step.observation for step in known])
    np.testing.assert_array_equal(got.action, [step.action for step in known])
    np.testing.assert_array_equal(got.terminated, [step.terminated for step in known])
    np.testing.assert_array_equal(got.truncated, [step.step == limit - 1 for step in known])
    used = np.array([not step.terminated for step in known])
    successors = np.array([step.next_observation for step in known])
    np.testing.assert_array_equal(np.asarray(got.next_observation)[used], successors[used])
    assert 0 < len(known) < len(recorded)


@pytest.mark.parametrize("ended", ["terminals", "timeouts"])
def test_how_a_step_at_the_time_limit_ended_cannot_be_seen_without_its_successor(
    ended: str,
) -> None:
    """Otherwise the length of what is left would tell on an action that is not shown."""
    flags = {"terminals": np.zeros(3), "timeouts": np.zeros(3)}
    flags[ended][2] = 1
    arrays = StepArrays(
        observations=np.arange(6.0).reshape(3, 2),
        actions=np.zeros(3, int),
        rewards=np.zeros(3),
        experts=np.zeros(3, int),
        **flags,
    )
    read = from_step_arrays(arrays, Declared(2, 2, horizon=3))
    assert read.episodes.length.tolist() == [2]
    assert (read.episodes.terminated[0], read.episodes.truncated[0]) == (False, True)


def test_without_a_truncated_column_the_declared_horizon_says_what_was_truncated(
    recorded: Any, declared: Declared, tmp_path: Path
) -> None:
    table = step_table(recorded).drop_columns(["truncated"])
    pa.csv.write_csv(table, tmp_path / "t.csv")
    assert_as_recorded(read_table(tmp_path / "t.csv", declared), recorded)


def test_step_arrays_give_what_gymnasium_did(recorded: Any, declared: Declared) -> None:
    columns: Any = [
        np.array([getattr(step, name) for step in recorded])
        for name in ("observation", "action", "reward", "terminated", "truncated", "expert")
    ]
    successors = np.array([step.next_observation for step in recorded])
    columns[1] = columns[1][:, None]  # d3rlpy keeps actions and rewards as (steps, 1)
    columns[2] = columns[2][:, None]
    arrays = StepArrays(*columns)._replace(next_observations=successors)
    assert_as_recorded(from_step_arrays(arrays, declared), recorded)


def test_padding_behind_the_end_is_ignored(
    log: Demonstrations, recorded: Any, declared: Declared
) -> None:
    episodes = list(log)
    size = declared.horizon + 3
    observations = np.full((len(episodes), size + 1, 4), np.nan)
    actions, rewards = np.full((len(episodes), size), 9), np.full((len(episodes), size), np.nan)
    for index, episode in enumerate(episodes):
        observations[index, : len(episode.observations)] = episode.observations
        actions[index, : len(episode.actions)] = episode.actions
        rewards[index, : len(episode.rewards)] = episode.rewards
    padded = from_padded(
        declared,
        expert=log.episodes.expert,
        length=log.episodes.length,
        observations=observations,
        actions=actions,
        rewards=rewards,
        terminated=log.episodes.terminated,
        truncated=log.episodes.truncated,
    )
    assert_as_recorded(padded, recorded)
