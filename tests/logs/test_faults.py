"""Every fault in a log is refused with a message that says where it is and what to do."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from quorum_rl.errors import QuorumError
from quorum_rl.logs import (
    Declared,
    Demonstrations,
    StepArrays,
    TableColumns,
    from_episodes,
    from_padded,
    from_step_arrays,
    open_demonstrations,
    read_table,
    save_demonstrations,
    write_table,
)

DECLARED = Declared(action_count=2, observation_size=2, horizon=4)
HEADER = "expert,episode,step,observation_0,observation_1,action,reward,terminated,truncated"
GOOD = (  # data rows 1 to 7: two episodes of expert 1, one of expert 2
    "1,0,0,0.0,1.0,0,1,false,false",
    "1,0,1,0.5,1.5,1,1,false,false",
    "1,0,2,1.0,2.0,1,1,true,false",
    "1,1,0,2.0,1.0,0,1,true,false",
    "2,0,0,3.0,1.0,0,1,false,false",
    "2,0,1,3.5,1.5,1,1,false,false",
    "2,0,2,4.0,2.0,0,1,true,false",
)


def replaced(row: int, text: str) -> list[str]:
    return [text if number == row else line for number, line in enumerate(GOOD, 1)]


def without(row: int) -> list[str]:
    return [line for number, line in enumerate(GOOD, 1) if number != row]


FAULTS: dict[str, tuple[list[str], str]] = {
    "an action out of range": (replaced(2, "1,0,1,0.5,1.5,2,1,0,0"), "row 2: the action is 2, but"),
    "a negative action": (replaced(6, "2,0,1,3.5,1.5,-1,1,0,0"), "row 6: the action is -1, but"),
    "a fractional action": (
        replaced(6, "2,0,1,3.5,1.5,0.5,1,0,0"),
        r"row 6: the action is 0\.5, but a finite list of actions was declared",
    ),
    "NaN": (replaced(5, "2,0,0,nan,1.0,0,1,0,0"), "row 5: the observation has a value that is"),
    "infinity": (replaced(5, "2,0,0,3.0,inf,0,1,0,0"), "row 5: the observation has a value that"),
    "too large a number": (replaced(5, "2,0,0,3.0,1e39,0,1,0,0"), "row 5: the observation has"),
    "a missing reward": (replaced(1, "1,0,0,0.0,1.0,0,,0,0"), "row 1: the reward has a value"),
    "a missing expert": (replaced(3, ",0,2,1.0,2.0,1,1,1,0"), "row 3: .* 'expert' is missing"),
    "a missing flag": (replaced(3, "1,0,2,1.0,2.0,1,1,,0"), "row 3: .* 'terminated' is missing"),
    "a word for a number": (replaced(4, "1,1,0,x,1.0,0,1,1,0"), "row 4: .*'x'"),
    "a narrower row": (replaced(3, "1,0,2,1.0,1,1,true,false"), "row 3: Expected 9 columns, got 8"),
    "a step missing inside": (without(2), "row 2: step 1 of this episode is missing before step 2"),
    "a step missing at the start": (without(5), "row 5: step 0 of this episode is missing before"),
    "a duplicate row": (
        [*GOOD, GOOD[5]],
        "row 8: step 1 of this episode is there already, in .*row 6: remove one",
    ),
    "an episode of two experts": (
        replaced(6, "3,0,1,3.5,1.5,1,1,0,0"),
        "row 7: this episode belongs to two experts, see .*row 6: give all its rows one expert",
    ),
    "an episode that changes hands": (
        [*GOOD[:6], "3,0,2,4.0,2.0,0,1,true,false"],
        "row 7: this episode belongs to two experts, see .*row 6",
    ),
    "a row after termination": (
        replaced(2, "1,0,1,0.5,1.5,1,1,true,false"),
        "row 3: this row follows the end of its episode, in .*row 2: give the next episode",
    ),
    "a row after truncation": (
        replaced(5, "2,0,0,3.0,1.0,0,1,false,true"),
        "row 6: this row follows the end of its episode, in .*row 5",
    ),
    "an episode cut short": (without(7), "row 6: the episode stops here neither terminated nor"),
    "a step truncated early": (
        replaced(4, "1,1,0,2.0,1.0,0,1,false,true"),
        "row 4: the episode is truncated after 1 steps, but the declared horizon is 4: declare the "
        "time limit .* count it as terminated; .* declare early_truncation_is_public",
    ),
    "an episode truncated early": (
        replaced(7, "2,0,2,4.0,2.0,0,1,false,true"),
        "row 7: the episode is truncated after 3 steps, but the declared horizon is 4",
    ),
    "no row": ([], "there is no row; give at least one episode"),
}


def read_csv(tmp_path: Path, lines: list[str], declared: Declared = DECLARED) -> Demonstrations:
    (tmp_path / "log.csv").write_text("\n".join([HEADER, *lines]) + "\n")
    return read_table(tmp_path / "log.csv", declared)


def read_parquet(
    tmp_path: Path, columns: dict[str, Any], declared: Declared = DECLARED, **names: Any
) -> Demonstrations:
    pa.parquet.write_table(pa.table(columns), tmp_path / "log.parquet")
    return read_table(tmp_path / "log.parquet", declared, TableColumns(**names))


def test_the_log_without_a_fault_is_read(tmp_path: Path) -> None:
    demonstrations = read_csv(tmp_path, list(GOOD))
    assert demonstrations.episodes.length.tolist() == [3, 1, 3]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_csv_is_refused_with_file_and_row(tmp_path: Path, fault: str) -> None:
    lines, message = FAULTS[fault]
    with pytest.raises(QuorumError, match=r"log\.csv'.*" + message):
        read_csv(tmp_path, lines)


def test_an_episode_longer_than_the_declared_horizon_is_refused(tmp_path: Path) -> None:
    with pytest.raises(QuorumError, match=r"row 3: an episode of 3 steps exceeds .* horizon of 2"):
        read_csv(tmp_path, list(GOOD), Declared(2, 2, horizon=2))


def test_an_early_truncation_is_read_if_its_rule_is_declared_public(tmp_path: Path) -> None:
    public = replace(DECLARED, early_truncation_is_public=True)
    columns = good_columns()
    columns["terminated"][6], columns["truncated"][6] = False, True
    columns["next_observation"] = [*columns["observation"][1:], columns["observation"][-1]]
    read = read_parquet(tmp_path, columns, public)
    assert read.episodes.length.tolist() == [3, 1, 3]
    unknown = replaced(7, "2,0,2,4.0,2.0,0,1,false,true")
    with pytest.raises(QuorumError, match="row 7: the state after this truncated episode is"):
        read_csv(tmp_path, unknown, public)
    both = replaced(7, "2,0,2,4.0,2.0,0,1,true,true")  # a public termination came as well
    assert read_csv(tmp_path, both).episodes.length.tolist() == [3, 1, 3]
    none, ended = np.zeros(1, int), np.ones(1)
    arrays = StepArrays(np.zeros((1, 2)), none, none, none, timeouts=ended, experts=none)
    with pytest.raises(QuorumError, match="episodes of one step are of no use"):
        from_step_arrays(arrays, Declared(2, 2, horizon=1))


@pytest.mark.parametrize("successors", [False, True])
def test_the_time_limit_is_what_was_acted_not_what_is_left_without_successors(
    successors: bool,
) -> None:
    """Three steps and a timeout: the limit is 3, though 2 steps remain without a successor."""
    arrays = StepArrays(
        observations=np.zeros((3, 2)),
        actions=np.zeros(3, int),
        rewards=np.zeros(3),
        terminals=np.zeros(3),
        timeouts=np.array([0, 0, 1]),
        experts=np.zeros(3, int),
        next_observations=np.zeros((3, 2)) if successors else None,
    )
    in_time = from_step_arrays(arrays, Declared(2, 2, horizon=3))
    assert in_time.episodes.length.tolist() == [3 if successors else 2]
    with pytest.raises(
        QuorumError, match=r"step arrays, row 3: .* truncated after 3 steps, but .* horizon is 4"
    ):
        from_step_arrays(arrays, DECLARED)


def test_without_a_truncated_column_an_episode_short_of_the_horizon_must_terminate(
    tmp_path: Path,
) -> None:
    columns = good_columns()
    del columns["truncated"]
    columns["terminated"][6] = False
    with pytest.raises(QuorumError, match="row 7: the episode stops here neither terminated nor"):
        read_parquet(tmp_path, columns)
    in_time = read_parquet(tmp_path, columns, Declared(2, 2, horizon=3))
    assert in_time.episodes.truncated.tolist() == [True, False, True]


def test_another_number_of_observation_columns_is_refused(tmp_path: Path) -> None:
    with pytest.raises(QuorumError, match="2 columns for 'observation', but observation_size 3"):
        read_csv(tmp_path, list(GOOD), Declared(2, 3, 4))


def good_columns() -> dict[str, Any]:
    """The good log as columns, its observations as lists."""
    fields = [line.split(",") for line in GOOD]
    numbers = {
        name: [float(row[index]) for row in fields]
        for index, name in enumerate(HEADER.split(","))
        if index in (0, 1, 2, 5, 6)
    }
    flags = {"terminated": [row[7] == "true" for row in fields], "truncated": [False] * len(GOOD)}
    return numbers | flags | {"observation": [[float(n) for n in row[3:5]] for row in fields]}


@pytest.mark.parametrize(
    ("name", "row", "value", "message"),
    [
        ("observation", 4, [3.0], r"log\.parquet', row 5: 'observation' has 1 numbers, but"),
        ("action", 3, 0.5, r"row 4: the action is 0\.5"),
        ("terminated", slice(None), [0.5] * 7, r"row 1: the flag 'terminated' is 0\.5: give true"),
    ],
)
def test_a_faulty_value_in_parquet_is_refused(
    tmp_path: Path, name: str, row: int | slice, value: Any, message: str
) -> None:
    columns = good_columns()
    columns[name][row] = value
    with pytest.raises(QuorumError, match=message):
        read_parquet(tmp_path, columns)


def test_observations_shifted_against_actions_are_refused(tmp_path: Path) -> None:
    columns = good_columns()
    columns["next_observation"] = columns["observation"]  # what a careless export would write
    with pytest.raises(QuorumError, match=r"row 1: the next observation is not what .*row 2 obs"):
        read_parquet(tmp_path, columns)


@pytest.mark.parametrize(
    "name", ["expert", "episode", "step", "action", "reward", "terminated", "observation"]
)
def test_a_missing_column_is_named(tmp_path: Path, name: str) -> None:
    columns = good_columns()
    del columns[name]
    with pytest.raises(QuorumError, match=rf"log\.parquet' lacks a column: unknown .*'{name}"):
        read_parquet(tmp_path, columns)


@pytest.mark.parametrize("renamed", ["truncated", "next_observation"])
def test_an_optional_column_must_be_there_once_it_is_renamed(tmp_path: Path, renamed: str) -> None:
    with pytest.raises(QuorumError, match="lacks a column: unknown column 'typo"):
        read_parquet(tmp_path, good_columns(), DECLARED, **{renamed: "typo"})


def test_names_that_differ_in_leading_zeros_are_different_experts(tmp_path: Path) -> None:
    lines = [line.replace("2,0,", "007,0,", 1) if line[0] == "2" else line for line in GOOD]
    lines += ["7,0,0,3.0,1.0,0,1,true,false"]
    assert read_csv(tmp_path, lines).expert_count == 3


def test_files_that_are_not_there_or_not_what_they_say_are_refused(tmp_path: Path) -> None:
    for name in ("log.arrow", "log.parquet", "log.csv", "log.txt"):
        (tmp_path / name).write_bytes(b"something else, \xff\xfe\x00 long enough to look at")
    with pytest.raises(QuorumError, match=r"nothing\.arrow': there is no such file"):
        open_demonstrations(tmp_path / "nothing.arrow")
    with pytest.raises(QuorumError, match=r"log\.arrow' cannot be opened"):
        open_demonstrations(tmp_path / "log.arrow")
    with pytest.raises(QuorumError, match=r"': this is a folder, give a file\.$"):
        open_demonstrations(tmp_path)
    with pytest.raises(QuorumError, match=r"nothing\.csv': there is no such file"):
        read_table(tmp_path / "nothing.csv", DECLARED)
    with pytest.raises(QuorumError, match="is not a whole Parquet file"):
        read_table(tmp_path / "log.parquet", DECLARED)
    with pytest.raises(QuorumError, match=r"log\.csv'"):
        read_table(tmp_path / "log.csv", DECLARED)
    with pytest.raises(QuorumError, match=r"must end in \.parquet or \.csv"):
        read_table(tmp_path / "log.txt", DECLARED)


def test_a_parquet_file_is_no_native_file_and_csv_does_not_say_what_is_declared(
    log: Demonstrations, tmp_path: Path
) -> None:
    write_table(log, tmp_path / "log.parquet")
    write_table(log, tmp_path / "log.csv")
    with pytest.raises(QuorumError, match="import a table with 'quorum demos import'"):
        open_demonstrations(tmp_path / "log.parquet")
    with pytest.raises(QuorumError, match=r"does not say what is declared: give .* horizon, and"):
        read_table(tmp_path / "log.csv")


def test_a_folder_that_is_not_there_is_named(log: Demonstrations, tmp_path: Path) -> None:
    for write in (save_demonstrations, write_table):
        with pytest.raises(QuorumError, match="cannot be written: No such file or directory"):
            write(log, tmp_path / "no" / "log.parquet")


ARRAY_FAULTS: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "two experts": (lambda a: a["experts"].__setitem__(1, 9), "row 2: .* belongs to two experts"),
    "no end": (lambda a: a["terminals"].__setitem__(3, 0), "row 4: the episode stops here neither"),
    "an action": (lambda a: a["actions"].__setitem__(2, 5), "row 3: the action is 5"),
    "NaN": (lambda a: a["rewards"].__setitem__(0, np.nan), "row 1: the reward has a value"),
    "width": (lambda a: a.update(observations=np.zeros((4, 3))), "observations have shape"),
    "count": (lambda a: a.update(rewards=np.zeros(3)), "rewards have shape"),
    "names": (lambda a: a.update(experts=np.zeros(4)), "experts have type float64"),
}


@pytest.mark.parametrize("fault", ARRAY_FAULTS)
def test_faulty_step_arrays_are_refused(fault: str) -> None:
    arrays: dict[str, Any] = {
        "observations": np.zeros((4, 2)),
        "actions": np.array([0, 1, 1, 0]),
        "rewards": np.zeros(4),
        "terminals": np.array([0, 1, 0, 1]),
        "timeouts": np.zeros(4),
        "experts": np.array([1, 1, 0, 0]),
    }
    assert from_step_arrays(StepArrays(**arrays), DECLARED).transition_count == 4
    spoil, message = ARRAY_FAULTS[fault]
    spoil(arrays)
    with pytest.raises(QuorumError, match="step arrays.*" + message):
        from_step_arrays(StepArrays(**arrays), DECLARED)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"length": [3, 2]}, "5 steps together need 7 observations"),
        ({"length": [4, 0]}, "episode 1 has no step"),
        ({"expert": [1]}, "differ in length"),
        ({"observations": np.full((6, 2), np.inf)}, "state 0: the observation has a value"),
        ({"observations": np.zeros((6, 1))}, "observations have shape"),
        ({"actions": [0, 0, 2, 0]}, "step 2: the action is 2"),
        ({"terminated": [1, 0]}, "episode 1 ends neither terminated nor truncated"),
        (
            {"terminated": [1, 0], "truncated": [0, 1]},
            "episode 1: the episode is truncated after 2 steps, but the declared horizon is 4",
        ),
    ],
)
def test_faulty_episodes_are_refused(change: dict[str, Any], message: str) -> None:
    arrays: dict[str, Any] = {
        "expert": [0, 1],
        "length": [2, 2],
        "observations": np.zeros((6, 2)),
        "actions": [0, 1, 0, 1],
        "rewards": np.zeros(4),
        "terminated": [1, 1],
        "truncated": [0, 0],
    }
    assert len(from_episodes(DECLARED, **arrays)) == 2
    with pytest.raises(QuorumError, match=message):
        from_episodes(DECLARED, **(arrays | change))


def test_padded_episodes_truncated_early_are_refused() -> None:
    arrays: dict[str, Any] = {
        "expert": [5, 1],
        "length": [2, 1],
        "observations": np.zeros((2, 3, 2)),
        "actions": np.zeros((2, 2), int),
        "rewards": np.zeros((2, 2)),
        "terminated": [0, 0],
        "truncated": [1, 1],
    }
    with pytest.raises(QuorumError, match="episode 1: the episode is truncated after 1 steps"):
        from_padded(Declared(2, 2, horizon=2), **arrays)
    public = Declared(2, 2, horizon=2, early_truncation_is_public=True)
    assert from_padded(public, **arrays).episodes.length.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"horizon": 0}, "the declared horizon is 0"),
        ({"action_count": True}, "the declared action_count is True"),
        (
            {"p_min": 0.6},
            "the declared p_min is 0.6: with 2 actions a floor lies between 0 and 0.5",
        ),
        ({"p_min": float("nan")}, "the declared p_min is nan"),
    ],
)
def test_what_cannot_be_declared_is_refused(facts: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {"action_count": 2, "observation_size": 1, "horizon": 3}
    with pytest.raises(QuorumError, match=message):
        Declared(**(good | facts))


@pytest.mark.parametrize(
    ("name", "instead", "message"),
    [
        ("reward", "action", "two columns 'action'"),
        ("observation_1", "observation_999999999999", "1 columns for 'observation'"),
    ],
)
def test_doubled_and_far_columns_are_refused(
    tmp_path: Path, name: str, instead: str, message: str
) -> None:
    header = HEADER.replace(name, instead)
    (tmp_path / "log.csv").write_text("\n".join([header, *GOOD]) + "\n")
    with pytest.raises(QuorumError, match=message):
        read_table(tmp_path / "log.csv", DECLARED)
