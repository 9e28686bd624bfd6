"""A world of the sizes that the crowd's demonstrations have; nobody steps through it."""

import math
from typing import ClassVar

from quorum_rl.envs.cartpole import CartPole
from quorum_rl.envs.world import Spaces


class Clock(CartPole):
    """One number is seen, the time; there are two actions."""

    name: ClassVar[str] = "Clock"
    spaces: ClassVar[Spaces] = Spaces(("time",), (0.0,), (math.inf,), ("left", "right"))


WORLD = Clock()
