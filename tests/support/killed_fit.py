"""A fit in a process of its own, to be killed: `python killed_fit.py FOLDER`.

Every line that it prints says where it is.
"""

import sys
import time
from pathlib import Path

from fits import LONG, crowd, fitted

from quorum_rl.pipeline import training_stage


def main(folder: str) -> None:
    training_stage.SECONDS_BETWEEN_SAVES = 0.0  # type: ignore[misc]

    def progress(done: int, _of: int) -> None:
        print(f"taken {done}", flush=True)
        time.sleep(0.03)  # time to be killed in, while there is something to save

    fitted(
        crowd(),
        Path(folder),
        settings=LONG,
        report=lambda text: print(text, flush=True),
        progress=progress,
    )
    print("finished", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
