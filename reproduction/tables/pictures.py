"""What pictures share: how they look, and how it is known whether one is current.

A picture's file says what was drawn, as a digest: one drawn from other numbers has another.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.collections import Collection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text

INK, FAINT = "#1f2933", "#7b8794"


def panels(
    rows: int, columns: int, size: tuple[float, float], **options: Any
) -> tuple[Figure, Any]:
    """A figure, and its axes in a row."""
    figure = Figure(figsize=size, layout="constrained", facecolor="white")
    return figure, figure.subplots(rows, columns, squeeze=False, **options).ravel()


def bare(axes: Any) -> None:
    """A grid of faint lines, and no frame."""
    axes.grid(axis="y", color=FAINT, alpha=0.25)
    axes.tick_params(colors=INK, labelsize=11, length=0)
    for side in axes.spines:
        axes.spines[side].set_visible(False)


def error_bars(axes: Any, points: Mapping[float, Any], **options: Any) -> None:
    """Means with their intervals, by where they are along the axis."""
    every = list(points.values())
    below = [point.mean - point.low for point in every]
    above = [point.high - point.mean for point in every]
    means = [point.mean for point in every]
    axes.errorbar(list(points), means, [below, above], ms=5.5, zorder=3, **options)


def digest(figure: Figure) -> str:
    """Of all that was drawn: words, and numbers to five digits."""
    artists: list[Artist] = []
    for axes in figure.axes:
        artists += [*axes.lines, *axes.collections, *axes.patches, *axes.texts, axes.title]
    drawn = [_drawn(artist) for artist in artists]
    return hashlib.sha256("\n".join(drawn).encode()).hexdigest()[:16]


def _drawn(artist: Artist) -> str:
    if isinstance(artist, Text):
        return artist.get_text()
    points: list[Any] = []
    if isinstance(artist, Line2D):
        points = [artist.get_xydata()]
    elif isinstance(artist, Patch):
        path = artist.get_path()
        points = [artist.get_patch_transform().transform(path.vertices)]
    elif isinstance(artist, Collection):
        points = [path.vertices for path in artist.get_paths()]
    return " ".join(f"{value:.5g}" for part in points for value in np.ravel(part))


def is_current(figure: Figure, file: Path) -> bool:
    return file.exists() and digest(figure) in file.read_text(encoding="utf-8")


def save(figure: Figure, file: Path) -> None:
    with mpl.rc_context({"svg.hashsalt": "quorum"}):  # the same picture is the same file
        metadata = {"Date": None, "Description": f"drawn from {digest(figure)}"}
        figure.savefig(file, metadata=metadata, facecolor=figure.get_facecolor())
