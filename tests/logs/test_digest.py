"""Whoever changes a file of logs or experts after it was written is found out when it is opened."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from refusals import refusal

from quorum_rl.errors import QuorumError
from quorum_rl.experts import load_population, save_population
from quorum_rl.experts.networks import Layer
from quorum_rl.experts.population import Population
from quorum_rl.logs import (
    Demonstrations,
    open_demonstrations,
    read_table,
    save_demonstrations,
    write_table,
)
from quorum_rl.logs.declared import METADATA_KEY
from quorum_rl.logs.digest import DIGEST_KEY, digests_of


@pytest.fixture
def path(log: Demonstrations, tmp_path: Path) -> Path:
    save_demonstrations(log, tmp_path / "log.arrow")
    return tmp_path / "log.arrow"


def rewritten(path: Path, change: Callable[[Any], Any]) -> None:
    """The file with its table changed and its metadata kept, as any Arrow program can write it."""
    with pa.ipc.open_file(pa.BufferReader(path.read_bytes())) as reader:
        batch = change(reader.get_batch(0))
    with pa.ipc.new_file(str(path), batch.schema) as writer:
        writer.write_batch(batch)


def without_digest(batch: Any) -> Any:
    kept = {name: text for name, text in batch.schema.metadata.items() if name != DIGEST_KEY}
    return batch.replace_schema_metadata(kept)


def fault_in(path: Path, **choices: Any) -> str:
    return refusal(open_demonstrations, path, **choices)


def test_one_digit_of_the_floor_is_found_out(path: Path) -> None:
    whole = path.read_bytes()
    assert whole.count(b'"p_min": 0.02') == 2  # Arrow has the schema at both ends
    path.write_bytes(whole.replace(b'"p_min": 0.02', b'"p_min": 0.42'))
    assert "declares was changed after Quorum wrote it" in fault_in(path, values=False)


@pytest.mark.parametrize("name", ["expert", "terminated", "truncated"])
def test_whose_an_episode_is_and_how_it_ended_is_looked_at_always(path: Path, name: str) -> None:
    def swapped(batch: Any) -> Any:
        values = batch.column(name).to_numpy(zero_copy_only=False)
        other = np.sort(values[::-1] + 1) if name == "expert" else np.ones_like(values)
        return batch.set_column(batch.schema.get_field_index(name), name, pa.array(other))

    rewritten(path, swapped)
    assert f"column '{name}' was changed" in fault_in(path, values=False)


@pytest.mark.parametrize("name", ["observations", "actions", "rewards"])
def test_a_single_value_is_found_out_by_the_pass_over_the_file(path: Path, name: str) -> None:
    column = getattr(open_demonstrations(path).columns, name)
    whole = bytearray(path.read_bytes())
    place = whole.find(np.ascontiguousarray(column).tobytes())
    assert place > 0
    whole[place] ^= 1
    path.write_bytes(whole)
    open_demonstrations(path, values=False)
    assert f"column '{name}' was changed" in fault_in(path)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("observations", np.nan, "the observation has a value that is missing, NaN"),
        ("rewards", np.inf, "the reward has a value that is missing, NaN, infinite"),
        ("actions", 7, "the action is 7, but actions are the whole numbers 0 to 1"),
    ],
)
def test_values_that_no_import_takes_are_refused(
    log: Demonstrations, tmp_path: Path, name: str, value: float, said: str
) -> None:
    column = getattr(log.columns, name).copy()
    column[3] = value
    wrong = replace(log, columns=log.columns._replace(**{name: column}))
    save_demonstrations(wrong, tmp_path / "wrong.arrow")
    assert said in fault_in(tmp_path / "wrong.arrow")


def test_a_file_without_its_digest_is_refused(path: Path) -> None:
    rewritten(path, without_digest)
    assert "carries no digest" in fault_in(path)


def test_deeply_nested_metadata_is_refused_in_a_sentence(path: Path) -> None:
    deep = b"[" * 100_000

    def nested(batch: Any) -> Any:
        said = {METADATA_KEY: deep}
        return batch.replace_schema_metadata(said | {DIGEST_KEY: digests_of(said)})

    rewritten(path, nested)
    assert "what was declared is unreadable" in fault_in(path)


def test_what_an_exported_table_declares_cannot_be_changed(
    log: Demonstrations, tmp_path: Path
) -> None:
    path = tmp_path / "log.parquet"
    write_table(log, path)
    table = pq.read_table(path)
    facts: Mapping[bytes, bytes] = table.schema.metadata
    forged = facts[METADATA_KEY].replace(b'"p_min": 0.02', b'"p_min": 0.42')
    pq.write_table(table.replace_schema_metadata({**facts, METADATA_KEY: forged}), path)
    with pytest.raises(QuorumError, match="declares was changed after Quorum wrote it"):
        read_table(path)


@pytest.fixture
def experts(tmp_path: Path) -> Path:
    layer: Any = Layer(np.ones((3, 4, 2), np.float32), np.zeros((3, 2), np.float32))
    population = Population(
        observation_size=4, action_count=2, network=(layer,), origin={"world": "CartPole"},
        p_min=0.02,
    )  # fmt: skip
    save_population(population, tmp_path / "experts.safetensors")
    return tmp_path / "experts.safetensors"


def test_a_changed_floor_or_weight_of_experts_is_found_out(experts: Path) -> None:
    whole = experts.read_bytes()
    floor = rb"\"p_min\": 0.02"
    assert whole.count(floor) == 1
    weight = bytearray(whole)
    weight[-1] ^= 1
    for forged in (whole.replace(floor, rb"\"p_min\": 0.42"), bytes(weight)):
        experts.write_bytes(forged)
        with pytest.raises(QuorumError, match="was changed after it was written"):
            load_population(experts)
