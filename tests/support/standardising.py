"""How learners of three-number observations may see them: no two numbers alike."""

from typing import Any

STANDARDISING: dict[str, Any] = {
    "observation_centre": (0.5, -1.0, 2.0),
    "observation_scale": (0.5, 2.0, 1.5),
}
