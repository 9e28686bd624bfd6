"""Logs as people have them: labels, times, missing values, ranges, lists and fields."""

import contextlib
import warnings
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given, settings, strategies as st

from quorum_rl.dictionary import Column, Dictionary
from quorum_rl.errors import QuorumError
from quorum_rl.logs import (
    Declared,
    Demonstrations,
    TableColumns,
    open_demonstrations,
    read_minari,
    read_table,
    save_demonstrations,
    schema_of,
    write_minari,
    write_table,
)
from quorum_rl.logs.table_reader import Reader

LABELS = ("hold", "low", "high")
VITALS = Dictionary(
    (Column("glucose", "mg/dL", fill=120, low=40, high=400), Column("weight")), LABELS
)
DECLARED = Declared(3, 2, horizon=3, dictionary=VITALS)
COLUMNS = TableColumns(expert="doctor", episode="patient", step="at", action="order")
MORNING = datetime(2025, 3, 1, 8)


def rows() -> dict[str, list[Any]]:
    """Two patients of doctor b and one of doctor a, three visits each."""
    return {
        "doctor": ["b"] * 6 + ["a"] * 3,
        "patient": ["p1"] * 3 + ["p2"] * 3 + ["p3"] * 3,
        "at": [MORNING + timedelta(hours=7 * n) for n in range(9)],
        "order": ["hold", "low", "high", "low", "low", "hold", "high", "hold", "low"],
        "glucose": [100.0, None, 900.0, 80.0, float("nan"), 10.0, 200.0, 210.0, 220.0],
        "weight": [80, 80, 80, 90, 90, 90, 70, 70, 70],
        "reward": [1.0] * 9,
        "terminated": [False, False, True] * 3,
    }


def table_of(columns: dict[str, Any], folder: Path, ending: str = ".parquet") -> Path:
    path = folder / f"visits{ending}"
    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    if ending == ".csv":
        pa.csv.write_csv(table, str(path))
    else:
        pa.parquet.write_table(table, str(path))
    return path


def read(folder: Path, ending: str = ".parquet", **changes: Any) -> Demonstrations:
    return read_table(table_of(rows() | changes, folder, ending), DECLARED, COLUMNS)


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_words_times_and_gaps_become_numbers(tmp_path: Path, ending: str) -> None:
    columns = COLUMNS if ending == ".parquet" else TableColumns(**vars(COLUMNS) | ORDERS)
    log = read_table(table_of(rows(), tmp_path, ending), DECLARED, columns)
    assert log.expert_names == ("a", "b")
    assert log.declared.dictionary == VITALS
    first, second, third = (episode.observations[:, 0].tolist() for episode in log)
    # Without next observations the limit moves forward: two steps, and the state after them.
    assert (first, second, third) == ([200, 210, 220], [100, 120, 400], [80, 120, 40])
    assert [episode.actions.tolist() for episode in log] == [[2, 0], [0, 1], [1, 1]]
    save_demonstrations(log, tmp_path / "log.arrow")
    assert open_demonstrations(tmp_path / "log.arrow").declared == log.declared


ORDERS: dict[str, Any] = {"step_orders": True}


@settings(max_examples=15, derandomize=True)
@given(st.permutations(range(9)), st.sampled_from(["times", "words", "numbers", "seconds"]))
def test_whatever_orders_the_rows_gives_the_same_demonstrations(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], kind: str
) -> None:
    folder = tmp_path_factory.mktemp("d")
    columns, times = rows(), rows()["at"]
    columns["at"] = {
        "times": times,
        "words": [time.isoformat() for time in times],
        "numbers": [1e9 + n / 8 for n in range(9)],
        "seconds": [int(time.timestamp()) for time in times],
    }[kind]
    mixed = {name: [values[n] for n in order] for name, values in columns.items()}
    oriented = TableColumns(**vars(COLUMNS) | ORDERS)
    found = read_table(table_of(mixed, folder), DECLARED, oriented)
    plain = read(folder)
    for name, column in found.columns._asdict().items():
        np.testing.assert_array_equal(column, getattr(plain.columns, name))


def test_two_rows_at_one_time_are_refused(tmp_path: Path) -> None:
    same = [*rows()["at"][:1] * 2, *rows()["at"][2:]]
    with pytest.raises(QuorumError, match=r"row 2: its step is that of .*row 1 in the same"):
        read(tmp_path, at=same)


@pytest.mark.parametrize(
    ("at", "said"),
    [
        ([f"visit {n}" for n in range(5, 14)], "is no number, no ISO 8601 time and not as long"),
        ([*range(8), None], "row 9: the value of column 'at' is missing"),
        ([*map(float, range(8)), float("nan")], "row 9: the step 'at' is not finite"),
    ],
)
def test_steps_that_order_nothing_are_refused(tmp_path: Path, at: list[Any], said: str) -> None:
    with pytest.raises(QuorumError, match=said):
        read_table(table_of(rows() | {"at": at}, tmp_path), DECLARED,
                   TableColumns(**vars(COLUMNS) | ORDERS))  # fmt: skip


def test_counted_steps_still_show_that_a_row_is_missing(tmp_path: Path) -> None:
    with pytest.raises(QuorumError, match=r"step 1 of this episode is missing .*\(--step-orders\)"):
        read(tmp_path, at=[0, 2, 3, 0, 1, 2, 0, 1, 2])
    with pytest.raises(QuorumError, match=r"row 1: the step 'at' is '2025.*\(--step-orders\)"):
        read(tmp_path, ending=".csv")


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_a_label_that_was_not_declared_is_refused(tmp_path: Path, ending: str) -> None:
    with pytest.raises(QuorumError, match="row 2: the action is 'lwo', none of the declared label"):
        read(tmp_path, ending, order=["hold", "lwo", *rows()["order"][2:]], at=[0, 1, 2] * 3)


def test_labels_that_are_numbers_name_doses_and_not_actions(tmp_path: Path) -> None:
    doses = [0, 2.5, 10, 2.5, 2.5, 0, 10, 0, 2.5]
    named = Declared(3, 2, horizon=3, dictionary=Dictionary((), ("0", "2.5", "10")))
    path = table_of(rows() | {"order": doses, "glucose": [1.0] * 9}, tmp_path)
    columns = TableColumns(**vars(COLUMNS) | {"observation": ("glucose", "weight")})
    log = read_table(path, named, columns)
    assert [episode.actions.tolist() for episode in log] == [[2, 0], [0, 1], [1, 1]]
    assert log.declared.dictionary is not None
    assert log.declared.dictionary.names == ("glucose", "weight")
    path = table_of(rows() | {"order": [7, *doses[1:]], "glucose": [1.0] * 9}, tmp_path)
    with pytest.raises(QuorumError, match=r"row 1: the action is .*7.*, none of the declared"):
        read_table(path, named, columns)


def test_text_without_labels_says_that_they_are_to_be_declared(tmp_path: Path) -> None:
    columns = TableColumns(**vars(COLUMNS) | {"observation": ("weight", "reward2")})
    path = table_of(rows() | {"reward2": [1.0] * 9}, tmp_path)
    with pytest.raises(
        QuorumError, match=r"row 1: the action 'order' is 'hold': declare all .*--a"
    ):
        read_table(path, Declared(3, 2, horizon=3), columns)


def categories(ordered: bool) -> Any:
    indices = pa.array([0, 1, 2, 1, 1, 0, 2, 0, 1], pa.int8())
    return pa.DictionaryArray.from_arrays(indices, pa.array([*LABELS, "never"]), ordered=ordered)


def test_only_ordered_categories_declare_their_labels(tmp_path: Path) -> None:
    """Those of other types are mostly what occurred, which would tell on who did it."""
    columns = TableColumns(**vars(COLUMNS) | {"observation": ("weight",)})
    path = table_of(rows() | {"order": categories(True)}, tmp_path)
    log = read_table(path, Declared(4, 1, horizon=3), columns)
    assert log.declared.dictionary is not None
    assert log.declared.dictionary.action_labels == (*LABELS, "never")
    assert next(iter(log)).actions.tolist() == [2, 0]
    path = table_of(rows() | {"order": categories(False)}, tmp_path)
    with pytest.raises(QuorumError, match="the action 'order' is 'hold': declare all"):
        read_table(path, Declared(4, 1, horizon=3), columns)


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_a_table_with_labels_gives_back_the_same(tmp_path: Path, ending: str) -> None:
    log = read(tmp_path)
    write_table(log, tmp_path / f"again{ending}")
    again = read_table(
        tmp_path / f"again{ending}",
        Declared(3, 2, log.declared.horizon, dictionary=Dictionary((), LABELS))
        if ending == ".csv"
        else None,
    )
    assert again.columns.actions.tolist() == log.columns.actions.tolist()
    assert again.declared.dictionary is not None
    assert again.declared.dictionary.action_labels == LABELS
    if ending == ".parquet":
        assert again.declared == log.declared


def test_another_dictionary_than_the_file_carries_is_refused(tmp_path: Path) -> None:
    log = read(tmp_path)
    write_table(log, tmp_path / "again.parquet")
    other = Declared(3, 2, log.declared.horizon, dictionary=Dictionary((), ("a", "b", "c")))
    with pytest.raises(QuorumError, match="exported with other columns, labels, fills or ranges"):
        read_table(tmp_path / "again.parquet", other)


def test_a_missing_value_without_a_fill_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        QuorumError, match=r"row 3: 'weight' of the observation has .* missing.*--fill"
    ):
        read(tmp_path, weight=[80, 80, None, 90, 90, 90, 70, 70, 70])


def test_flags_decimals_fields_and_tensors_are_numbers(tmp_path: Path) -> None:
    frames = np.arange(9 * 6, dtype=np.float32).reshape(9, 2, 3)
    tensor = pa.FixedShapeTensorArray.from_numpy_ndarray(frames)
    vitals = pa.array([{"pulse": n, "well": n % 2 == 0} for n in range(9)])
    dose = pa.array([Decimal(f"{n}.25") for n in range(9)])
    lists = pa.array([[n, n + 1] for n in range(9)])
    columns = rows() | {"frame": tensor, "vitals": vitals, "dose": dose, "trace": lists}
    named = ("frame", "vitals.pulse", "vitals.well", "dose", "trace")
    log = read_table(
        table_of(columns, tmp_path),
        Declared(3, 11, horizon=3, dictionary=Dictionary((), LABELS)),
        TableColumns(**vars(COLUMNS) | {"observation": named}),
    )
    assert log.declared.dictionary is not None
    assert [column.shape for column in log.declared.dictionary.columns] == [
        (2, 3), (), (), (), (2,),
    ]  # fmt: skip
    first = next(iter(log)).observations[0]
    np.testing.assert_array_equal(first, [*frames[6].ravel(), 6, 1, 6.25, 6, 7])


def test_nested_lists_have_the_declared_shape_or_are_missing_whole(tmp_path: Path) -> None:
    images: list[Any] = [[[n, 1.0], [2.0, 3.0]] for n in range(9)]
    images[7] = None
    seen = Dictionary((Column("image", fill=5, shape=(2, 2)),), LABELS)
    declared = Declared(3, 4, horizon=3, dictionary=seen)
    log = read_table(table_of(rows() | {"image": images}, tmp_path), declared, COLUMNS)
    np.testing.assert_array_equal(
        next(iter(log)).observations, [[6, 1, 2, 3], [5, 5, 5, 5], [8, 1, 2, 3]]
    )
    images[2] = [[1.0, 2.0, 3.0], [1.0]]
    with pytest.raises(QuorumError, match="row 3: 'image' has 3 numbers, but 2 are declared"):
        read_table(table_of(rows() | {"image": images}, tmp_path), declared, COLUMNS)


def test_lists_of_no_known_length_need_a_shape(tmp_path: Path) -> None:
    path = table_of(rows() | {"a": [[1.0]] * 9, "b": [[1.0, 2.0]] * 9}, tmp_path)
    both = TableColumns(**vars(COLUMNS) | {"observation": ("a", "b")})
    with pytest.raises(QuorumError, match="column 'a' holds lists, and its schema says not how"):
        read_table(path, Declared(3, 3, 3, dictionary=Dictionary((), LABELS)), both)


def test_who_acted_and_what_came_of_it_is_not_seen_before(tmp_path: Path) -> None:
    for role, name in (("reward", "reward"), ("expert", "doctor")):
        columns = TableColumns(**vars(COLUMNS) | {"observation": ("weight", name)})
        with pytest.raises(
            QuorumError, match=f"column '{name}' is the {role} and part of the obse"
        ):
            read_table(table_of(rows(), tmp_path), Declared(3, 2, 3), columns)


FINITE = "but a finite list of actions was declared: declare the bounds of continuous ones"


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_continuous_actions_get_one_sentence(tmp_path: Path, ending: str) -> None:
    doses = {"order": [0.0, 0.37, *[1.0] * 7], "at": [0, 1, 2] * 3, "glucose": [1.0] * 9}
    columns = TableColumns(**vars(COLUMNS) | {"observation": ("glucose", "weight")})
    with pytest.raises(QuorumError, match=r"row 2: the action is 0\.37, " + FINITE):
        read_table(table_of(rows() | doses, tmp_path, ending), Declared(3, 2, 3), columns)
    if ending == ".parquet":
        several = rows() | doses | {"order": [[0.1, 0.2]] * 9}
        with pytest.raises(QuorumError, match="column 'order' holds list.*, " + FINITE):
            read_table(table_of(several, tmp_path), Declared(3, 2, 3), columns)


def minari_dataset(name: str, observations: Any, actions: Any) -> Any:
    """A dataset of two episodes of two steps, with the experts x and w."""
    minari = pytest.importorskip("minari", reason="Minari is an optional extra")
    pytest.importorskip("h5py", reason="Minari's HDF5 storage needs h5py")
    from minari.data_collector.episode_buffer import EpisodeBuffer

    def states(space: Any, seed: int) -> Any:
        space.seed(seed)
        drawn = [space.sample() for _ in range(3)]
        if isinstance(drawn[0], dict):
            return {key: [state[key] for state in drawn] for key in drawn[0]}
        return drawn

    actions.seed(0)
    episodes = [
        EpisodeBuffer(
            id=number,
            observations=states(observations, number),
            actions=[actions.sample() for _ in range(2)],
            rewards=[1.0, 1.0],
            terminations=[False, True],
            truncations=[False, False],
        )
        for number in range(2)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of all that such a dataset could say and does not
        made = minari.create_dataset_from_buffers(
            name, episodes, observation_space=observations, action_space=actions
        )
    made.storage.update_episode_metadata([{"expert": "x"}, {"expert": "w"}])
    return made


def test_minari_brings_images_dictionaries_and_says_what_is_continuous(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spaces = pytest.importorskip("gymnasium.spaces")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    image = spaces.Box(0, 255, (2, 3), np.uint8)
    both = spaces.Dict({"pulse": spaces.Box(-1, 1, ()), "frame": image})
    made = minari_dataset("nested-v0", both, spaces.Discrete(2))
    log = read_minari("nested-v0", Declared(2, 7, 2, dictionary=Dictionary((), ("no", "yes"))))
    assert log.declared.dictionary is not None
    assert log.declared.dictionary.action_labels == ("no", "yes")
    shapes = {column.name: column.shape for column in log.declared.dictionary.columns}
    assert shapes == {"frame": (2, 3), "pulse": ()}
    theirs = next(iter(made.iterate_episodes([1]))).observations
    flat = [theirs[name].reshape(3, -1) for name in log.declared.dictionary.names]
    np.testing.assert_array_equal(next(iter(log)).observations, np.concatenate(flat, axis=1))
    minari_dataset("image-v0", image, spaces.Discrete(2))
    cut = Dictionary((Column("frame", low=0, high=100, shape=(2, 3)),))
    log = read_minari("image-v0", Declared(2, 6, 2, dictionary=cut))
    assert log.columns.observations.max() == 100
    write_minari(log, "again-v0")
    assert read_minari("again-v0").declared == log.declared
    minari_dataset("doses-v0", image, spaces.Box(-1, 1, (1,)))
    with pytest.raises(QuorumError, match="it has the actions Box.*, " + FINITE):
        read_minari("doses-v0", Declared(2, 6, 2))


def test_a_schema_is_read_without_any_row(tmp_path: Path) -> None:
    """A file whose rows are rubbish has the schema of the whole one."""
    path = table_of(rows(), tmp_path)
    whole, content = schema_of(path), bytearray(path.read_bytes())
    end = len(content) - 8 - int.from_bytes(content[-8:-4], "little")  # where the footer begins
    content[4:end] = b"\xff" * (end - 4)
    path.write_bytes(content)
    with pytest.raises(QuorumError):
        read_table(path, DECLARED, COLUMNS)
    assert schema_of(path).kinds == whole.kinds


STRANGE: list[Any] = [
    pa.nulls(9), pa.array([True, False, None] * 3), pa.array(range(9), pa.uint64()),
    pa.array([0.0, float("inf"), float("nan")] * 3), pa.array([Decimal("1.5"), None, None] * 3),
    pa.array(["", "x", None] * 3), pa.array(["1", "2", "3"] * 3), pa.array(["1e5", "-2", "+3"] * 3),
    pa.array([b"a"] * 9), pa.array([[1.0], [], None] * 3), pa.array([[["x"]]] * 9),
    pa.array([{"a": 1, "b": {"c": "x"}}] * 9), pa.array([MORNING] * 9),
    pa.array([timedelta(1)] * 9), pa.array(["a", "b", None] * 3).dictionary_encode(),
    pa.array([2, 1, 0] * 3).dictionary_encode(), pa.array([2**62] * 9),
    pa.array([[("k", 1)]] * 9, pa.map_("string", "int8")), pa.array(["٣", "1_0", " 1"] * 3),
    pa.array([1.0, 2.0, 3.0] * 3, "float16"), pa.array(["2025-03-01", "2025-3-1", "x"] * 3),
]  # fmt: skip


@pytest.mark.parametrize("strange", STRANGE, ids=lambda array: str(array.type)[:20])
@pytest.mark.parametrize("role", ["doctor", "patient", "at", "order", "glucose", "reward",
                                  "terminated"])  # fmt: skip
@pytest.mark.parametrize("labels", [LABELS, ("0", "1", "2"), ()])
def test_columns_of_every_type_are_taken_or_refused_in_a_sentence(
    role: str, strange: Any, labels: tuple[str, ...], tmp_path: Path
) -> None:
    path = table_of(rows() | {role: strange}, tmp_path)
    seen = Dictionary(VITALS.columns, labels)
    said = ""
    try:
        read_table(path, Declared(3, 2, 9, dictionary=seen), TableColumns(**vars(COLUMNS) | ORDERS))
    except QuorumError as error:
        said = str(error)
    assert "\n" not in said


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    table = pa.table({name: pa.array(values) for name, values in rows().items()})
    path = tmp_path / "visits.parquet"
    pa.parquet.write_table(table.append_column("glucose", table.column("weight")), str(path))
    with pytest.raises(QuorumError, match="has two columns 'glucose': rename one"):
        read_table(path, DECLARED, COLUMNS)


def test_a_column_of_which_nothing_was_written_down_is_all_fill(tmp_path: Path) -> None:
    log = read(tmp_path, glucose=[None] * 9)
    assert set(log.columns.observations[:, 0]) == {120}


def labels_with_and_without(doctor: str, folder: Path) -> list[tuple[str, ...]]:
    """What an import publishes of two neighbouring logs, whose writer encoded what occurred."""
    columns = TableColumns(**vars(COLUMNS) | {"observation": ("weight",)})
    made = []
    for left_out in (None, doctor):
        kept = [row for row, who in enumerate(rows()["doctor"]) if who != left_out]
        here = {name: [values[row] for row in kept] for name, values in rows().items()}
        here["order"] = ["hold" if who == "b" else "high" for who in here["doctor"]]
        encoded = here | {"order": pa.array(here["order"]).dictionary_encode()}
        count = 2 if left_out is None else 1
        labels, path = tuple[str, ...](), table_of(encoded, folder)
        with contextlib.suppress(QuorumError):
            declared = read_table(path, Declared(count, 1, horizon=3), columns).declared
            labels = () if declared.dictionary is None else declared.dictionary.action_labels
        made.append(labels)
    return made


def test_what_is_published_does_not_tell_which_orders_one_doctor_gave(tmp_path: Path) -> None:
    assert labels_with_and_without("a", tmp_path) == [(), ()]


def test_labels_that_were_taken_from_what_occurs_would_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted bug: every category type is taken at its word."""

    def all_that_occur(self: Reader, name: str) -> tuple[str, ...]:
        return tuple(map(str, self.column(name).dictionary.to_pylist()))

    monkeypatch.setattr(Reader, "categories", all_that_occur)
    assert labels_with_and_without("a", tmp_path) == [("hold", "high"), ("hold",)]
