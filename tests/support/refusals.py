"""How a call is refused: in one sentence, whatever it is that refuses."""

from collections.abc import Callable
from typing import Any

import pytest

from quorum_rl.errors import QuorumError


def refusal(call: Callable[..., Any], *given: Any, **choices: Any) -> str:
    """The sentence with which a call is refused."""
    with pytest.raises(QuorumError) as refused:
        call(*given, **choices)
    said = str(refused.value)
    assert said.endswith(".")
    assert "\n" not in said
    return said
