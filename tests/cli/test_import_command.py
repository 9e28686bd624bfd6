"""`quorum demos import`: a sketch, the file that was made of it, and flags that outrank it."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from commands import Quorum

from quorum_rl.dictionary import Column, Dictionary
from quorum_rl.logs import open_demonstrations

ROWS: dict[str, Any] = {
    "doctor": ["b", "b", "a", "a"],
    "patient": [1, 1, 2, 2],
    "at": pa.array([10, 20, 30, 40], pa.timestamp("s")),
    "order": ["no", "yes", "yes", "no"],
    "sugar": [100.0, None, 500.0, 90.0],
    "weight": [70.0, 71.0, 72.0, 73.0],
    "reward": [1.0] * 4,
    "moved": [False, True, False, True],
}
SAID = (
    'expert = "doctor"\nepisode = "patient"\nstep = "at"\naction = "order"\nterminated = "moved"\n'
    'action_labels = ["no", "yes"]\n[observation]\n'
    'sugar = { unit = "mg/dL", fill = 120, clip = [40, 400] }\nweight = {}\n'
)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "visits.parquet"
    pa.parquet.write_table(pa.table(ROWS), str(path))
    (tmp_path / "columns.toml").write_text(SAID)
    return path


def words(table: Path, *more: object) -> tuple[object, ...]:
    named = "--columns", table.with_name("columns.toml")
    return "demos", "import", table, "--out", table.with_name("log.arrow"), *named, *more


def imported(table: Path) -> Dictionary:
    found = open_demonstrations(table.with_name("log.arrow")).declared.dictionary
    assert found is not None
    return found


def test_a_corrected_sketch_is_all_that_an_import_needs(table: Path, quorum: Quorum) -> None:
    sketch = table.with_name("sketch.toml")
    assert "correct it" in quorum("demos", "import", table, "--sketch", sketch)
    text = sketch.read_text()
    for role, name in (("expert", "doctor"), ("episode", "patient"), ("step", "at"),
                       ("action", "order"), ("terminated", "moved")):  # fmt: skip
        assert f'\n{role} = ""' in text
        text = text.replace(f'\n{role} = ""', f'\n{role} = "{name}"')
    text = text.replace("action_labels = []", 'action_labels = ["no", "yes"]')
    text = text.replace("sugar = {}", "sugar = { fill = 120, clip = [40, 400] }")
    sketch.write_text(text.replace("patient = {}", ""))
    log = table.with_name("log.arrow")
    said = quorum("demos", "import", table, "--columns", sketch, "--horizon", 3, "--out", log)
    assert imported(table) == Dictionary(
        (Column("sugar", fill=120, low=40, high=400), Column("weight")), ("no", "yes")
    )
    assert "the horizon is 2 and not 3: nothing says what came after" in " ".join(said.split())
    shown = quorum("demos", "show", log)
    assert "sugar, cut to 40 to 400, 120 where it is missing; weight" in " ".join(shown.split())
    assert quorum.facts("demos", "show", log)["dictionary"]["action_labels"] == ["no", "yes"]


def test_flags_outrank_the_file(table: Path, quorum: Quorum) -> None:
    quorum(*words(table, "--horizon", 3, "--fill", "sugar=60", "--clip", "sugar=50:200",
                  "--unit", "sugar=mmol/l", "weight=kg", "--action-labels", "yes,no"))  # fmt: skip
    assert imported(table) == Dictionary(
        (Column("sugar", "mmol/l", 60, 50, 200), Column("weight", "kg")), ("yes", "no")
    )
    log = open_demonstrations(table.with_name("log.arrow"))
    assert next(iter(log)).actions.tolist() == [0, 1]
    assert next(iter(log)).observations[:, 0].tolist() == [200, 90, 90]
    quorum(*words(table, "observation", "weight,sugar", "--horizon", 3, "--overwrite"))
    assert imported(table).names == ("weight", "sugar")
    assert imported(table).columns[1].fill == 120


def test_next_observations_keep_the_horizon(table: Path, quorum: Quorum) -> None:
    pa.parquet.write_table(pa.table(ROWS | {"weight_after": [71.0, 1, 73, 1]}), str(table))
    said = quorum("demos", "import", table, "--out", table.with_name("log.arrow"), "--horizon", 3,
                  "--action-labels", "no,yes", "--columns", "expert", "doctor", "episode",
                  "patient", "step", "at", "action", "order", "terminated", "moved",
                  "observation", "weight", "next_observation", "weight_after")  # fmt: skip
    assert "horizon" not in said
    assert open_demonstrations(table.with_name("log.arrow")).declared.horizon == 3
    assert imported(table).names == ("weight",)


REFUSED: dict[str, tuple[tuple[object, ...], str]] = {
    "fill": (("--fill", "sugar=x"), "--fill is 'x': give a number"),
    "half a fill": (("--fill", "sugar"), "--fill has 'sugar': give pairs"),
    "fill of nothing": (("--fill", "suger=1"), "'suger' (did you mean sugar?)"),
    "endless fill": (("--fill", "sugar=inf"), "the fill of column 'sugar' is inf"),
    "fill outside": (("--fill", "sugar=1"), "is 1, outside its range of 40 to 400"),
    "clip": (("--clip", "sugar=40"), "the range of column 'sugar' is '40'"),
    "clip of nothing": (("--clip", "suger=1:2"), "'suger' (did you mean sugar?)"),
    "turned clip": (("--clip", "sugar=400:40"), "the smaller one first"),
    "unit": (("--unit", "sugar="), "the unit of column 'sugar' is ''"),
    "labels": (("--action-labels", "no,,yes"), "the label of an action is ''"),
    "a label twice": (("--action-labels", "no,no"), "two actions are called 'no'"),
    "a label too few": (("--action-labels", "no,nein"), "the action is 'yes', none of"),
    "labels and actions": (("--actions", 3), "2 actions have labels (no, yes), but action_count 3"),
    "observations": (("--observations", 3), "has 2 columns for an observation, but observation_"),
    "half a pair": (("--columns", "expert"), "--columns has 'expert': give a .toml file, then"),
    "a role": (("--columns", "expret", "doctor"), "unknown column of logs 'expret'"),
    "two ends": (("--columns", "terminated", "moved,died"), "the terminated is moved, died: give"),
    "no file": (("--columns", "none.toml"), "'none.toml' cannot be read"),
    "both": (("--sketch", "x.toml"), "give --out, the file to write, or --sketch"),
    "no step": (("--columns", "step", "doctor"), "--step-orders"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_one_sentence_and_nothing_is_written(
    case: str, table: Path, quorum: Quorum
) -> None:
    more, said = REFUSED[case]
    asked = words(table, "--horizon", 3, *more)
    if "--columns" in more:
        labels = "--action-labels", "no,yes", "--observations", 1
        asked = (*words(table)[:-2], "--horizon", 3, *labels, *more)
    if case == "no step":
        asked = (*asked, "expert", "doctor", "episode", "patient", "action", "order", "terminated",
                 "moved", "observation", "weight")  # fmt: skip
    assert said in quorum.refused_for_free(table.parent, *asked)


def test_a_sketch_is_refused_where_none_can_be_made(table: Path, quorum: Quorum) -> None:
    folder = table.parent
    for source, sketch, said in (
        (table, "columns.txt", "give a name that ends in .toml"),
        (table, "columns.toml", "--overwrite"),
        ("minari:a/b-v0", "x.toml", "says itself what its columns are"),
        (folder / "none.parquet", "x.toml", "there is no such file"),
        (folder / "columns.toml", "x.toml", "must end in .parquet or .csv"),
    ):
        asked = "demos", "import", source, "--sketch", folder / sketch
        assert said in quorum.refused_for_free(folder, *asked)
    theirs = "demos", "import", "minari:a/b-v0", "--out", folder / "x.arrow", "--columns", "step"
    assert "a Minari dataset has no columns" in quorum.refused_for_free(folder, *theirs, "tick")
    assert "--horizon and --actions" in quorum.refused_for_free(folder, *words(table))
