"""The default fit beside the default before local updates: seconds from command to policy.

Both run as commands of their own, by turns, on 300 small CartPole experts. `--before` is a
checkout of an earlier version, whose own default is run; without it, `--method selective` is.

    python benchmarks/fit_speed.py cartpole.arrow cartpole.safetensors --before ../before
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

BUDGET = ("--epsilon", "10", "--delta", "1e-3", "--accept", "one-expert-each", "--seed", "1")


def seconds(log: Path, words: list[str], source: Path) -> float:
    """How long one fit takes, with a copy of the log of its own: a release closes one."""
    with tempfile.TemporaryDirectory() as folder:
        own = Path(folder) / "log.arrow"
        own.write_bytes(log.read_bytes())
        command = [sys.executable, "-m", "quorum_rl", "fit", str(own), *words, *BUDGET]
        begun = time.perf_counter()
        subprocess.run(
            [*command, "--folder", str(Path(folder) / "run")],
            env={**os.environ, "PYTHONPATH": str(source)},
            check=True,
            stdout=subprocess.DEVNULL,
        )
        return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("log", type=Path)
    parser.add_argument("experts", type=Path)
    parser.add_argument("--before", type=Path, help="a checkout of an earlier version")
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    here = Path(__file__).parents[1] / "src"
    earlier = [str(given.experts)]
    source = here if given.before is None else given.before / "src"
    if given.before is None:
        earlier += ["--method", "selective", "--learner", "cql"]
    now, before = [], []
    for _ in range(given.rounds):
        now.append(seconds(given.log, [], here))
        before.append(seconds(given.log, earlier, source))
        print(f"now {now[-1]:.1f} s, before {before[-1]:.1f} s", flush=True)
    print(f"{median(before) / median(now):.1f} times as fast ({os.cpu_count()} cores)")


if __name__ == "__main__":
    main()
