"""Logs of continuous actions: every format brings them back, and what is wrong gets a sentence."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import Quorum
from dosing import BOUNDS, EPISODES, EXPERTS, STEPS, dosing

from quorum_rl.dictionary import Dictionary
from quorum_rl.errors import QuorumError
from quorum_rl.logs import (
    Declared,
    Demonstrations,
    TableColumns,
    from_step_arrays,
    open_demonstrations,
    read_minari,
    read_table,
    save_demonstrations,
    to_step_arrays,
    write_minari,
    write_table,
)

DECLARED = Declared(2, 1, 4, dictionary=Dictionary((), (), BOUNDS), early_truncation_is_public=True)
ROWS = 4


def same(found: Demonstrations, log: Demonstrations) -> None:
    assert found.declared.action_bounds == BOUNDS
    for ours, theirs in zip(found.columns, log.columns, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert found.columns.actions.dtype == np.float32


def rows(**changed: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {
        "expert": [0] * ROWS,
        "episode": [0] * ROWS,
        "step": list(range(ROWS)),
        "observation_0": [0.5] * ROWS,
        "next_observation_0": [0.5] * ROWS,
        "dose": [1.5, -2.0, 0.0, 2.0],
        "flow": [0.0, 1.0, 0.5, 0.25],
        "reward": [1.0] * ROWS,
        "terminated": [False] * 3 + [True],
    }
    return {name: values for name, values in (usual | changed).items() if values is not None}


COLUMNS = TableColumns(action=("dose", "flow"))


def table(tmp_path: Path, ending: str = ".parquet", **changed: Any) -> Path:
    path, made = tmp_path / f"log{ending}", pa.table(rows(**changed))
    pq.write_table(made, path) if ending == ".parquet" else pa.csv.write_csv(made, path)
    return path


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".arrow", "minari", "arrays"])
def test_every_format_brings_back_what_was_written(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, path = dosing(), tmp_path / f"log{ending}"
    if ending == ".arrow":
        save_demonstrations(log, path)
        found = open_demonstrations(path)
    elif ending == "minari":
        pytest.importorskip("minari", reason="Minari is an optional extra")
        monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
        write_minari(log, "doses-v0")
        found = read_minari("doses-v0")
    elif ending == "arrays":
        found = from_step_arrays(to_step_arrays(log), log.declared)
    else:
        write_table(log, path)
        said = replace(log.declared, dictionary=Dictionary((), ("dose", "flow"), BOUNDS))
        found = read_table(path, None if ending == ".parquet" else said)
    same(found, log)
    step = next(iter(found))
    assert step.actions.shape == (STEPS, 2)
    assert found.transitions([0, 3]).action.shape == (2, 2)
    assert len(found) == EXPERTS * EPISODES


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_columns_of_a_table_are_the_numbers_of_an_action_and_name_them(
    ending: str, tmp_path: Path
) -> None:
    log = read_table(table(tmp_path, ending), DECLARED, COLUMNS)
    wanted = np.array([[1.5, 0.0], [-2.0, 1.0], [0.0, 0.5], [2.0, 0.25]])
    np.testing.assert_allclose(log.columns.actions, wanted)
    assert log.declared.dictionary is not None
    assert log.declared.dictionary.action_labels == ("dose", "flow")
    numbered = rows(dose=None, flow=None, action_0=[1.0] * ROWS, action_1=[0.5] * ROWS)
    pq.write_table(pa.table(numbered), tmp_path / "numbered.parquet")
    assert read_table(tmp_path / "numbered.parquet", DECLARED).columns.actions.shape == (ROWS, 2)
    listed = rows(dose=None, flow=None, action=[[1.0, 0.5]] * ROWS)
    pq.write_table(pa.table(listed), tmp_path / "listed.parquet")
    found = read_table(tmp_path / "listed.parquet", DECLARED).columns.actions
    np.testing.assert_array_equal(found, [[1.0, 0.5]] * ROWS)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (float("nan"), "row 2: number 0 of the action is nan, but its bounds are -2 and 2"),
        (float("inf"), "row 2: number 0 of the action is inf, but"),
        (1e300, "row 2: number 0 of the action is inf, but"),
        (2.5, r"row 2: number 0 of the action is 2\.5, but its bounds are -2 and 2: correct the"),
        (None, "row 2: number 0 of the action is nan, but"),
    ],
)
def test_actions_that_are_none_get_one_sentence(bad: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(QuorumError, match=said):
        read_table(table(tmp_path, dose=[0.0, bad, 0.0, 0.0]), DECLARED, COLUMNS)


def test_shapes_and_declarations_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path = table(tmp_path)
    with pytest.raises(QuorumError, match="the action is dose, flow: give one column, or the bou"):
        read_table(path, Declared(2, 1, 4), COLUMNS)
    with pytest.raises(QuorumError, match="has 1 numbers in the columns of an action, but action_"):
        read_table(path, DECLARED, TableColumns(action="dose"))
    with pytest.raises(QuorumError, match="lacks a column: unknown column 'tempo'"):
        read_table(path, DECLARED, TableColumns(action=("dose", "tempo")))
    with pytest.raises(QuorumError, match=r"p_min is 0\.1, but actions are continuous"):
        replace(DECLARED, p_min=0.1)
    arrays = to_step_arrays(dosing())
    with pytest.raises(QuorumError, match="actions have shape"):
        from_step_arrays(arrays._replace(actions=arrays.actions[:, :1]), dosing().declared)


def test_a_bound_that_was_changed_in_a_file_is_found_out(tmp_path: Path) -> None:
    save_demonstrations(dosing(), tmp_path / "log.arrow")
    content = (tmp_path / "log.arrow").read_bytes()
    assert content.count(b"[-2.0, 2.0]") > 0
    (tmp_path / "log.arrow").write_bytes(content.replace(b"[-2.0, 2.0]", b"[-2.0, 9.0]"))
    with pytest.raises(QuorumError, match="was changed after Quorum wrote it"):
        open_demonstrations(tmp_path / "log.arrow")


def test_the_command_imports_them_by_flags_or_by_a_sketch(
    tmp_path: Path, quorum: Quorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    table(tmp_path, next_observation_0=None, observation_0=None, x=[0.5] * ROWS)
    flags = ("demos import log.parquet --horizon 5 --columns action dose,flow observation x "
             "--action-bounds -2:2 0:1 --out flags.arrow")  # fmt: skip
    quorum(*flags.split())
    quorum("demos", "import", "log.parquet", "--sketch", "columns.toml")
    text = Path("columns.toml").read_text()
    text = text.replace('action = ""', 'action = ["dose", "flow"]')
    text = text.replace("# action_bounds = [[0, 10]]", "action_bounds = [[-2, 2], [0, 1]]")
    kept = [line for line in text.splitlines() if not line.startswith(("dose", "flow"))]
    Path("columns.toml").write_text("\n".join(kept))
    drawn = ("--columns", "columns.toml", "--out", "toml.arrow")
    quorum("demos", "import", "log.parquet", "--horizon", 5, *drawn)
    both = [open_demonstrations(name).declared for name in ("flags.arrow", "toml.arrow")]
    assert both[0].dictionary == both[1].dictionary
    assert both[0].action_bounds == BOUNDS
    assert "-2 to 2, 0 to 1" in quorum("demos", "show", "flags.arrow")
    said = quorum.refused(*flags.replace("flags.arrow", "no.arrow").replace("0:1", "0").split())
    assert "one of --action-bounds is '0': give two numbers, such as" in said
    assert not Path("no.arrow").exists()
