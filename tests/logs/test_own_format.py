"""The example of a file format of one's own: JSON lines."""

import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quorum_rl.errors import QuorumError
from quorum_rl.logs import Declared, open_demonstrations, save_demonstrations, to_step_arrays

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "own_format.py"))
DECLARED = Declared(2, 1, horizon=2)
STEP = {"observation": [0.5], "action": 1, "reward": 1.0, "terminated": False, "truncated": False}


def steps(*experts: str, after: bool = True) -> list[dict[str, Any]]:
    """An episode of two steps of each."""
    more = {"next_observation": [0.5]} if after else {}
    return [
        STEP | more | {"expert": expert, "terminated": last}
        for expert in experts
        for last in (False, True)
    ]


def read(folder: Path, *lines: Any) -> Any:
    path = folder / "logs.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines))
    return EXAMPLE["read_json_lines"](path, DECLARED)


def test_lines_become_demonstrations_that_keep_the_names_of_experts(tmp_path: Path) -> None:
    save_demonstrations(read(tmp_path, *steps("desk-b", "desk-a", "desk-b")), tmp_path / "l.arrow")
    log = open_demonstrations(tmp_path / "l.arrow")
    assert log.expert_names == ("desk-a", "desk-b")
    arrays = to_step_arrays(log)
    assert arrays.experts.tolist() == ["desk-a"] * 2 + ["desk-b"] * 4
    np.testing.assert_array_equal(arrays.terminals, [0, 1, 0, 1, 0, 1])


def test_without_next_observations_the_time_limit_moves_forward(tmp_path: Path) -> None:
    assert read(tmp_path, *steps("a", after=False)).declared.horizon == 1


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([], "no line"),
        ([*steps("a"), {"action": 1}], "line 3: KeyError"),
        ([*steps("a"), 7], "line 3: TypeError"),
        (steps("a")[:1], "row 1: the episode stops here neither terminated nor truncated"),
    ],
)
def test_a_wrong_line_is_named(lines: list[Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(QuorumError, match=says):
        read(tmp_path, *lines)
