"""Twelve sites as processes on one machine, beside one machine and beside Flower's own DP strategy.

What a round takes and sends, what the policies earn, and what is left if a site is killed in the
middle. Needs the extra `sites`, and a log of CartPole's experts.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from quorum_rl.envs import get_world
from quorum_rl.evaluation import policy_returns, returns_of
from quorum_rl.logs import Demonstrations, open_demonstrations, save_demonstrations
from quorum_rl.pipeline import FitPlan, FitSettings, Fitted, fit
from quorum_rl.sites import (
    Agreement,
    Site,
    Sites,
    SitesHere,
    fit_at_sites,
    require_flower,
    sites_by_flower,
)
from quorum_rl.training import expert_data
from quorum_rl.training.data import transitions_of

ACCEPTED: Final = ("one-expert-each", "one-site-each", "failures-alike", "other-experts")
SUPERLINK: Final = (
    sys.executable, "-c", "from flwr.superlink.cli import flower_superlink as run; run()",
    "--isolation", "process", "--host", "127.0.0.1", "--insecure", "--port",
)  # fmt: skip
EPISODES: Final = 200
COST: Final[dict[str, Any]] = {"epsilon": 1.0, "delta": 1e-4}


class Counter:
    """Passes connections on to the SuperLink, and counts the bytes of one site in both ways."""

    def __init__(self, port: int) -> None:
        self._target, self.up, self.down = port, 0, 0
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._door.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            near, _ = self._door.accept()
            far = socket.create_connection(("127.0.0.1", self._target))
            for ends in ((near, far, True), (far, near, False)):
                threading.Thread(target=self._pass, args=ends, daemon=True).start()

    def _pass(self, source: socket.socket, to: socket.socket, up: bool) -> None:
        with suppress(OSError):  # the other way has ended
            while data := source.recv(2**16):
                to.sendall(data)
                if up:
                    self.up += len(data)
                else:
                    self.down += len(data)
            to.shutdown(socket.SHUT_WR)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def process(words: Sequence[str], said: Path) -> Iterator["subprocess.Popen[bytes]"]:
    with said.open("wb") as file:
        made = subprocess.Popen(words, stdout=file, stderr=subprocess.STDOUT, env=os.environ)
    try:
        yield made
    finally:
        made.kill()
        made.wait()


class Times:
    """When each round was done, and what to do then."""

    def __init__(self, at: dict[int, Callable[[], None]]) -> None:
        self.at, self.seen = at, [time.perf_counter()]

    def __call__(self, done: int, _: int) -> None:
        self.seen.append(time.perf_counter())
        if done in self.at:
            self.at[done]()

    def usual(self) -> float:
        """The median of a round, the first ones apart, which compile."""
        return float(median(np.diff(self.seen)[5:]))


def cut(log: Demonstrations, sites: int, each: int, folder: Path) -> dict[str, Demonstrations]:
    parts = {}
    for number in range(sites):
        name = f"site{number}"
        parts[name] = log.select(log.episodes.expert // each == number)
        if not (folder / f"{name}.arrow").exists():
            save_demonstrations(parts[name], folder / f"{name}.arrow")
    return parts


def fitted(
    reached: Sites, most: dict[str, int], least: int, folder: Path, times: Times, seed: int
) -> Fitted:
    return fit_at_sites(
        reached, Agreement(most, max(1, len(most) - 1)), minimum_experts=least, **COST,
        folder=folder, accepted=ACCEPTED, report=lambda _: None, progress=times, seed=seed,
    )  # fmt: skip


def in_processes(
    most: dict[str, int], least: int, folder: Path, name: str, seed: int, kill_at: int | None
) -> tuple[Fitted, dict[str, float]]:
    """The fit with each site in a process; one of them is killed in a round."""
    port = free_port()
    counter = Counter(port)
    with ExitStack() as stack:
        stack.enter_context(process((*SUPERLINK, str(port)), folder / "superlink.txt"))
        while "Uvicorn running" not in (folder / "superlink.txt").read_text():
            time.sleep(0.2)
        started = {}
        for place, site in enumerate(most):
            words = (
                sys.executable, "-m", "quorum_rl", "site", "start", "--name", site, "--log",
                str(folder / f"{site}.arrow"), "--most-experts", str(most[site]), "--insecure",
                "--accept", "other-experts", "--connect",
                f"127.0.0.1:{counter.port if place == 0 else port}",
            )  # fmt: skip
            started[site] = stack.enter_context(process(words, folder / f"{site}.txt"))
        sums: dict[str, float] = {}

        def begin() -> None:
            sums["up"], sums["down"] = counter.up, counter.down

        def kill() -> None:
            started[f"site{len(most) - 1}"].kill()

        times = Times({5: begin} | ({} if kill_at is None else {kill_at: kill}))
        with sites_by_flower(f"127.0.0.1:{port}", insecure=True, seconds=120.0) as reached:
            made = fitted(reached, most, least, folder / name, times, seed)
        rounds = made.plan.private_steps - 5
        up, down = counter.up - sums["up"], counter.down - sums["down"]
    return made, {
        "seconds a round": times.usual(),
        "bytes up": up / rounds,
        "bytes down": down / rounds,
    }


def by_flower(plan: FitPlan, log: Demonstrations, experts: int, seed: int) -> float:
    """What FedAvg with Flower's server-side fixed clipping earns: every expert a client.

    The same local steps, clip norm, noise multiplier and rounds. Flower's strategy is called on
    replies as it would get them; no process is between them.
    """
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1  # what messages name
    assert plan.private is not None
    step, data, learner = plan.private, expert_data(log), plan.learner
    params = learner.init(
        jax.random.key(seed), log.declared.observation_size, log.declared.action_count
    )
    leaves, structure = jax.tree.flatten(params)
    strategy = DifferentialPrivacyServerSideFixedClipping(
        FedAvg(), step.noise_multiplier, step.clip_norm, experts
    )
    np.random.seed(seed)

    @jax.jit
    def local(params: Any, key: Any) -> Any:
        first, second = jax.random.split(key)
        shown = transitions_of(data, jnp.arange(experts), first, step.contribution.transitions)
        keys = jax.random.split(second, experts)
        way = jax.vmap(step.contribution, (None, None, None, 0, 0))(
            learner, params, learner.init_target(params), shown, keys
        )
        return jax.tree.map(lambda at, by: at[None] - by, params, way)

    for number in range(1, plan.private_steps + 1):
        params = jax.tree.unflatten(structure, leaves)
        moved = [
            np.asarray(leaf)
            for leaf in jax.tree.leaves(local(params, jax.random.key(1000 * seed + number)))
        ]
        strategy.current_arrays = ArrayRecord([np.asarray(leaf) for leaf in leaves])
        replies = [
            Message(
                RecordDict({
                    "arrays": ArrayRecord([leaf[who] for leaf in moved]),
                    "metrics": MetricRecord({"num-examples": 1}),
                }),
                dst_node_id=0, message_type="train",
            )
            for who in range(experts)
        ]  # fmt: skip
        made, _ = strategy.aggregate_train(number, replies)
        assert made is not None
        leaves = [jnp.asarray(leaf) for leaf in made.to_numpy_ndarrays()]
    stacked = jax.tree.unflatten(structure, [leaf[None] for leaf in leaves])
    found = returns_of(learner, stacked, get_world("CartPole"), None, jax.random.key(5), EPISODES)
    return float(found.mean())


def earned(made: Fitted) -> float:
    found = policy_returns(made.policy, get_world("CartPole"), jax.random.key(5), EPISODES)
    return float(found.mean())


def same(one: Fitted, other: Fitted) -> bool:
    pairs = zip(jax.tree.leaves(one.params), jax.tree.leaves(other.params), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("log", type=Path, help="of CartPole's experts, numbered from 0")
    parser.add_argument("--folder", type=Path, default=Path("sites-benchmark"))
    parser.add_argument("--sites", type=int, default=12)
    parser.add_argument("--each", type=int, default=25, help="experts of a site")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--processes", action="store_true", help="also with real processes")
    given = parser.parse_args()
    require_flower()
    folder: Path = given.folder
    folder.mkdir(parents=True, exist_ok=True)
    experts = given.sites * given.each
    log = open_demonstrations(given.log)
    log = log.select(log.episodes.expert < experts)
    least = int(0.9 * experts)
    parts = cut(log, given.sites, given.each, folder)
    most = dict.fromkeys(parts, given.each)
    reached = SitesHere(
        [Site(name, part, most_experts=given.each, accepted=ACCEPTED[3:])
         for name, part in parts.items()]
    )  # fmt: skip
    found: dict[str, Any] = {"one machine": [], "sites": [], "to the bit": [], "Flower's DP": []}
    for seed in range(given.seeds):
        central = fit(
            log, **COST, minimum_experts=least, settings=FitSettings(), seed=seed,
            folder=folder / f"central{seed}", accepted=(ACCEPTED[0], ACCEPTED[3]),
            report=lambda _: None,
        )  # fmt: skip
        here = fitted(reached, most, least, folder / f"here{seed}", Times({}), seed)
        found["one machine"].append(earned(central))
        found["sites"].append(earned(here))
        found["to the bit"].append(same(central, here))
        found["Flower's DP"].append(by_flower(central.plan, log, experts, seed))
        print(json.dumps(found), flush=True)
        assert central.certificate is not None
        found["epsilon"] = central.certificate.epsilon
        if seed == 0 and given.processes:
            rounds = central.plan.private_steps
            apart, took = in_processes(most, least, folder, "apart", seed, None)
            killed, _ = in_processes(most, least, folder, "killed", seed, rounds // 2)
            assert apart.certificate is not None
            assert killed.certificate is not None
            found["processes"] = took | {
                "to the bit": same(here, apart),
                "earned with one killed": earned(killed),
                "epsilon with one killed": killed.certificate.epsilon,
            }
            print(json.dumps(found), flush=True)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
