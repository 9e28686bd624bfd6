"""`quorum demo`: everything that works so far, on an embedded default."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from quorum_rl.commands.output import check_folder, check_seed, console, save_picture
from quorum_rl.errors import QuorumError

if TYPE_CHECKING:
    from quorum_rl.experts import LoggedExperts
    from quorum_rl.logs import Demonstrations

EPISODES = 200
DECLARED_EXPERTS = 59  # of sixty: one may be taken away, and the guarantee still covers it
EPSILON, DELTA = 10.0, 1e-3  # sixty experts are few; with thousands a tenth of it does


@dataclass(frozen=True)
class Demo:
    """Play the worlds, train a few dozen experts, collect what they do, release what they agree on.

    Example: quorum demo --out demo
    """

    out: Path = Path("demo")
    """The folder for what it makes; files of an earlier demo are replaced."""
    seed: int = 0
    """Another number, another demo."""

    def run(self) -> None:
        from quorum_rl.devices import prepare

        if self.out.exists() and not self.out.is_dir():
            raise QuorumError(f"{str(self.out)!r} is a file: give a folder with --out.")
        check_seed(self.seed)
        try:
            self.out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise QuorumError(f"{str(self.out)!r} cannot be made: {error.strerror}.") from error
        check_folder(self.out)
        prepare()
        self._worlds()
        self._experts()

    def _worlds(self) -> None:
        """Random and reference policies side by side, and a picture of each world."""
        import jax
        import numpy as np
        from rich.table import Table

        from quorum_rl.commands.episodes import one_episode
        from quorum_rl.envs import get_world, with_params, world_names
        from quorum_rl.envs.drawing import draw_episode
        from quorum_rl.envs.reference import episode_returns, reference_policy
        from quorum_rl.envs.rollout import uniform_policy

        console().print(f"1. The worlds: {EPISODES} episodes of two policies each")
        table = Table("world", "policy", "mean return ± 95%", "normalised")
        for name in world_names():
            world = get_world(name)
            limit = world.facts.evaluation_time_limit
            params = with_params(world, time_limit=limit)
            for policy, acts in (
                ("random", uniform_policy(world)),
                ("reference", reference_policy(world)),
            ):
                returns = np.asarray(
                    episode_returns(world, acts, jax.random.key(self.seed), EPISODES)
                )
                mean = float(returns.mean())
                half = 1.96 * float(returns.std(ddof=1)) / EPISODES**0.5
                path = self.out / f"{name.lower()}-{policy}.png"
                episode = one_episode(world, params, policy, self.seed)  # type: ignore[arg-type]
                title = f"{name}, {policy} policy"
                save_picture(draw_episode(world, episode, params, title), path)
                normalised = world.facts.normalised(mean)
                table.add_row(name, policy, f"{mean:.4g} ± {half:.2g}", f"{normalised:.3f}")
        console().print(table)
        console().print(f"   an episode of each is drawn in {self.out}/")

    def _experts(self) -> None:
        """A small population on CartPole, its demonstrations, and how long it agrees."""
        from quorum_rl.commands.experts import Train
        from quorum_rl.commands.training import default_returns, train
        from quorum_rl.envs import get_world
        from quorum_rl.experts import load_population, smoothed
        from quorum_rl.logs import collect, save_demonstrations
        from quorum_rl.logs.agreement import agreement_curve
        from quorum_rl.report.pictures import draw_agreement, draw_returns

        console().print("2. Experts: sixty, trained on thirty variations of CartPole")
        path = self.out / "experts.safetensors"
        train(
            Train("CartPole", out=path, preset="small", settings=30, seed=self.seed, overwrite=True)
        )
        population = load_population(path)
        world = get_world("CartPole")
        returns = default_returns(
            population, world, world.default_params(), episodes=20, p_min=0.02, seed=self.seed
        )
        save_picture(draw_returns(returns, "CartPole"), self.out / "experts-returns.png")

        console().print("3. Demonstrations: twenty trajectories of each, smoothed to p_min = 0.02")
        experts = smoothed(population, 0.02)
        demonstrations, logged = collect(experts, world, trajectories=20, seed=self.seed)
        save_demonstrations(demonstrations, self.out / "demonstrations.arrow")
        curve = agreement_curve(logged, demonstrations, trajectories=100)
        save_picture(draw_agreement(curve, "CartPole"), self.out / "agreement.png")
        console().print(
            f"   {demonstrations.transition_count:,} transitions; after 1, 5, 10 and 20 steps "
            + ", ".join(f"{curve.mean[k - 1]:.0%}" for k in (1, 5, 10, 20))
            + " of the experts would have gone along"
        )
        self._release(demonstrations, logged)
        console().print(
            f"Look into {self.out}/: pictures, experts, demonstrations and released prefixes."
        )

    def _release(self, demonstrations: "Demonstrations", experts: "LoggedExperts") -> None:
        """What sixty experts let out at an epsilon that so few need, and what it cost."""
        from quorum_rl.budget import Ledger, SeededEntropy, certificate, read_ledger
        from quorum_rl.privacy import plan_release
        from quorum_rl.release import release, save_released

        declared = demonstrations.declared
        plan = plan_release(
            experts=DECLARED_EXPERTS,
            actions=declared.action_count,
            horizon=declared.horizon,
            p_min=declared.p_min,
            epsilon=EPSILON,
            delta=DELTA,
        )
        event = plan.event
        console().print(
            f"4. Release: of {event.iterations} trajectories, the steps that {event.threshold:.0f} "
            f"of at least {event.experts} experts would have gone along with"
        )
        path = self.out / "ledger.jsonl"
        path.unlink(missing_ok=True)
        Ledger.create(path, epsilon=None, delta=DELTA, kind="research")
        with Ledger.open(path) as ledger:
            released = release(
                experts, demonstrations, plan, ledger, entropy=SeededEntropy(self.seed)
            )
        save_released(released, self.out / "released.parquet")
        console().print(f"   {released.lengths.sum()} steps came out, in {len(released)} prefixes")
        console().print(f"   {certificate(read_ledger(path)).statement}")
