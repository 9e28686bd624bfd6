"""Reproduce the paper's evaluation in one world: `python -m reproduction CartPole`."""

import sys
from collections.abc import Sequence

import tyro

from quorum_rl.errors import Interrupted, QuorumError
from reproduction.paper import Paper


def main(words: Sequence[str] | None = None) -> None:
    """Exit status: 0 done, 2 the user can mend it, 130 interrupted."""
    try:
        tyro.cli(Paper, prog="python -m reproduction", args=words).run()
    except (QuorumError, OSError) as error:
        sys.exit(_said(error, 2))
    except (KeyboardInterrupt, Interrupted) as stop:
        sys.exit(_said(stop, 130))


def _said(reason: BaseException, status: int) -> int:
    print(f"reproduction: {str(reason) or 'interrupted.'}", file=sys.stderr)
    return status


if __name__ == "__main__":
    main()
