"""The picture of a sweep can be read."""

from itertools import pairwise

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from quorum_rl.sweep.results import _draw


@pytest.mark.parametrize(
    "values", [(0.003, 0.01, 0.03), (1e-3, 1.1e-2), (1e-4, 1e-2), (500, 9000), (1e-6, 1.0)]
)
def test_the_labels_of_a_log_axis_do_not_touch(values: tuple[float, ...]) -> None:
    figure = Figure(figsize=(4, 3.2), layout="constrained")
    FigureCanvasAgg(figure)
    panel = figure.subplots()
    _draw(panel, "learning_rate", [(value, 0.5) for value in values])
    figure.draw_without_rendering()
    low, high = panel.get_xlim()
    labels = [*panel.get_xticklabels(), *panel.get_xticklabels(minor=True)]
    shown = [
        label for label in labels if label.get_text() and low <= label.get_position()[0] <= high
    ]
    boxes = sorted((box.x0, box.x1) for box in (label.get_window_extent() for label in shown))
    assert len(boxes) >= 2
    assert all(after[0] > before[1] for before, after in pairwise(boxes))
