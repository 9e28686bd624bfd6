"""An expert's name goes wherever its log goes: by it a coin is thrown for who judges."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from quorum_rl.budget import SplitKey
from quorum_rl.errors import QuorumError
from quorum_rl.logs import (
    Declared,
    Demonstrations,
    from_step_arrays,
    open_demonstrations,
    read_minari,
    read_table,
    save_demonstrations,
    to_step_arrays,
    write_minari,
    write_table,
)
from quorum_rl.logs.digest import DIGEST_KEY, digests_of
from quorum_rl.logs.names import NAMES_KEY

NAMES: Final = ("Abel", "Bo, the 2nd", 'C"d\ne', "Zoë", "žák")
DATASET: Final = "names/of-v0"
MISSING: Final = set(pa.csv.ConvertOptions().null_values)


def by_file(log: Demonstrations, folder: Path) -> Demonstrations:
    save_demonstrations(log, folder / "log.arrow")
    return open_demonstrations(folder / "log.arrow")


def by_table(ending: str) -> Callable[[Demonstrations, Path], Demonstrations]:
    def travelled(log: Demonstrations, folder: Path) -> Demonstrations:
        write_table(log, folder / f"log{ending}")
        return read_table(folder / f"log{ending}", log.declared)

    return travelled


def by_minari(log: Demonstrations, folder: Path) -> Demonstrations:
    pytest.importorskip("minari", reason="Minari is an optional extra")
    pytest.importorskip("h5py", reason="Minari's HDF5 storage needs h5py")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINARI_DATASETS_PATH", str(folder))
        write_minari(log, DATASET)
        return read_minari(DATASET)


def by_arrays(log: Demonstrations, _: Path) -> Demonstrations:
    return from_step_arrays(to_step_arrays(log), log.declared)


WAYS: Final = {
    "arrow": by_file,
    "parquet": by_table(".parquet"),
    "csv": by_table(".csv"),
    "minari": by_minari,
    "arrays": by_arrays,
}


def log_of(names: tuple[str, ...]) -> Demonstrations:
    """Two episodes of one step for everybody; what is seen says whose it is."""
    count = 2 * len(names)
    made = from_step_arrays(
        to_step_arrays_of(np.repeat(np.arange(len(names)), 2), count),
        Declared(2, 1, horizon=1, identity="named"),
    )
    return replace(made, expert_names=names)


def to_step_arrays_of(experts: Any, count: int) -> Any:
    from quorum_rl.logs import StepArrays

    seen = experts[:, None].astype(np.float32)
    return StepArrays(seen, np.arange(count) % 2, np.ones(count), np.zeros(count), np.ones(count),
                      experts, seen)  # fmt: skip


def whose(log: Demonstrations) -> dict[str, set[float]]:
    """What the episodes of each name hold."""
    return {
        name: {float(log.episode(e).observations[0, 0]) for e in log.episodes_of(position)}
        for position, name in enumerate(log.names)
    }


@pytest.mark.parametrize("way", WAYS)
def test_a_name_survives_an_export_and_with_it_the_part_of_an_expert(
    way: str, tmp_path: Path
) -> None:
    log = log_of(NAMES)
    again = WAYS[way](log, tmp_path)
    assert whose(again) == whose(log)
    assert again.expert_names == NAMES


@pytest.mark.parametrize("way", WAYS)
def test_who_else_takes_part_moves_nobody_into_another_part(way: str, tmp_path: Path) -> None:
    """Were experts numbered by an export, all behind one who leaves would have other coins."""
    names = tuple(f"desk {number:03}" for number in range(40))
    with_all, without_one = log_of(names), log_of(names[1:])
    key = SplitKey(0.5, bytes(range(32)))
    parts = []
    for number, log in enumerate((with_all, without_one)):
        (tmp_path / str(number)).mkdir()
        again = WAYS[way](log, tmp_path / str(number))
        parts.append(dict(zip(again.names, key.judges(again.names), strict=True)))
    assert parts[0].items() >= parts[1].items()
    assert set(parts[0]) - set(parts[1]) == {names[0]}


@settings(max_examples=25, derandomize=True)
@given(
    st.sets(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), min_size=2),
    st.sampled_from(["arrow", "parquet", "arrays", "csv"]),
)
def test_any_text_is_a_name(
    tmp_path_factory: pytest.TempPathFactory, names: set[str], way: str
) -> None:
    """Some texts are numbers, and CSV takes some for missing values: that is refused."""
    log, folder = log_of(tuple(sorted(names))), tmp_path_factory.mktemp("named")
    if way == "csv" and names & MISSING:
        with pytest.raises(QuorumError, match="'expert' is missing"):
            WAYS[way](log, folder)
    else:
        assert whose(WAYS[way](log, folder)) == whose(log)


def test_names_that_are_numbers_are_the_same_names_as_numbers(tmp_path: Path) -> None:
    log = log_of(("10", "9"))
    again = WAYS["csv"](log, tmp_path)
    assert again.names == ("9", "10")
    assert whose(again) == whose(log)


def test_the_names_in_a_minari_dataset_of_others_are_kept(tmp_path: Path) -> None:
    by_minari(log_of(NAMES), tmp_path)
    (path,) = tmp_path.rglob("metadata.json")
    theirs = json.loads(path.read_text())
    for key in [key for key in theirs if key.startswith("quorum_rl.")]:
        del theirs[key]
    path.write_text(json.dumps(theirs))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
        import minari

        storage = minari.load_dataset(DATASET).storage
        storage.update_episode_metadata([{"expert": name} for name in ("b", "a") * 5])
        assert read_minari(DATASET, Declared(2, 1, horizon=1)).names == ("a", "b")


def with_metadata(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def attack(folder: Path) -> None:
        (path,) = folder.rglob("metadata.json")
        facts = json.loads(path.read_text())
        change(facts)
        path.write_text(json.dumps(facts))

    return attack


def other_floor(facts: dict[str, Any]) -> None:
    key = "quorum_rl.demonstrations"
    facts[key] = facts[key].replace('"p_min": null', '"p_min": 0.4')


def other_name(facts: dict[str, Any]) -> None:
    facts[NAMES_KEY.decode()] = json.dumps(["Abe", *NAMES[1:]])


def no_digest(facts: dict[str, Any]) -> None:
    del facts[DIGEST_KEY.decode()]


def in_data(change: Callable[[Any], None]) -> Callable[[Path], None]:
    def attack(folder: Path) -> None:
        import h5py

        (path,) = folder.rglob("*.hdf5")
        with h5py.File(path, "a") as file:
            change(file)

    return attack


def other_reward(file: Any) -> None:
    file["episode_3/rewards"][0] = 5.0


def other_expert(file: Any) -> None:
    file["episode_1"].attrs["expert"] = 1


MINARI_ATTACKS: Final = {
    "another floor": (with_metadata(other_floor), "declares was changed"),
    "another name": (with_metadata(other_name), "declares was changed"),
    "no digest": (with_metadata(no_digest), "carries no digest"),
    "another reward": (in_data(other_reward), "column 'rewards' was changed"),
    "another expert": (in_data(other_expert), "column 'expert' was changed"),
}


@pytest.mark.parametrize("attack", MINARI_ATTACKS)
def test_a_changed_minari_dataset_is_found_out(attack: str, tmp_path: Path) -> None:
    by_minari(log_of(NAMES), tmp_path)
    change, said = MINARI_ATTACKS[attack]
    change(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
        with pytest.raises(QuorumError, match=said) as refused:
            read_minari(DATASET)
    assert "\n" not in str(refused.value)


HOSTILE: Final = {
    "too few": '["a"]',
    "the same": '["a", "a", "b", "c", "d"]',
    "a number": '["a", 1, "b", "c", "d"]',
    "no text of UTF-8": '["a", "\\ud800", "b", "c", "d"]',
    "a NUL": '["a", "b\\u0000", "b", "c", "d"]',
    "no list": '{"a": 1}',
    "nested": "[" * 50_000,
}


@pytest.mark.parametrize("names", HOSTILE)
def test_a_log_with_hostile_names_is_refused_when_it_is_opened_and_not_after_a_charge(
    names: str, tmp_path: Path
) -> None:
    path = tmp_path / "log.arrow"
    log = log_of(NAMES)
    save_demonstrations(log, path)
    with pa.ipc.open_file(pa.BufferReader(path.read_bytes())) as reader:
        batch = reader.get_batch(0)
    said = {key: text for key, text in batch.schema.metadata.items() if key != DIGEST_KEY}
    said[NAMES_KEY] = HOSTILE[names].encode()
    batch = batch.replace_schema_metadata(said | {DIGEST_KEY: digests_of(said, log)})
    with pa.ipc.new_file(str(path), batch.schema) as file:
        file.write_batch(batch)
    with pytest.raises(QuorumError, match="name") as refused:
        open_demonstrations(path)
    assert "\n" not in str(refused.value)


def test_one_long_name_takes_no_more_memory_than_it_has_letters(tmp_path: Path) -> None:
    """As fixed-width texts these would be 16 GB."""
    rows, path = 20_000, tmp_path / "log.parquet"
    experts = ["x" * 200_000, *["y"] * (rows - 1)]
    ones = np.ones(rows)
    columns = {"expert": experts, "episode": np.arange(rows), "step": np.zeros(rows, int)}
    columns |= {"observation_0": ones, "action": np.zeros(rows, int), "reward": ones}
    columns |= {"terminated": ones == 1, "next_observation_0": ones}
    pq.write_table(pa.table(columns), path)
    log = read_table(path, Declared(2, 1, horizon=2))
    assert [len(name) for name in log.names] == [200_000, 1]
