"""`quorum sweep`: a search written in a configuration file, and the best of what it tried."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from quorum_rl.cli.configuration import as_toml, repeated
from quorum_rl.cli.flags import ExpertFlags, TrainingFlags
from quorum_rl.cli.output import check_seed, console, show_facts, stoppable, timed_bar
from quorum_rl.cli.parser import FILE_ONLY, RUNS_CODE
from quorum_rl.errors import Interrupted, QuorumError

if TYPE_CHECKING:
    from quorum_rl.logs import Demonstrations
    from quorum_rl.pipeline import Progress
    from quorum_rl.sweep import Judge, Spread, SweepOptions, Swept

Value = bool | int | float | str
Values = tuple[Value, ...]


@dataclass(frozen=True, kw_only=True)
class Sweep(ExpertFlags, TrainingFlags):
    """Try many settings, trained together where their shapes allow it, and keep the best.

    What to try stands in the configuration file: the table [sweep.grid] has a list of values for
    each setting, and every combination is tried; [sweep.random] has a list or a range {low, high,
    scale = "log"} for each, of which --trials draws are tried. Trials are judged by their returns
    in a world that is public. Ctrl-C stops; the same command goes on, and pays nothing again.

    The choice among trials is part of the mechanism. Without --select it is not accounted, and the
    winner's certificate says so: for synthetic experts. With --select public every trial is paid
    for, and with --select private a random number of them as one event.

    Example: quorum sweep --config sweep.toml --folder runs/sweep
    """

    epsilon: float
    """The cost of a trial by itself; what all cost together is said before it is paid."""
    grid: Annotated[dict[str, Values], FILE_ONLY] = field(default_factory=dict)
    """In the configuration file: values for each setting."""
    random: Annotated[dict[str, Values | dict[str, Value]], FILE_ONLY] = field(default_factory=dict)
    """In the configuration file: values or a range for each setting."""
    trials: int = 20
    """How many draws of [sweep.random] are tried."""
    search_seed: int = 0
    """Which draws these are."""
    select: Literal["public", "private"] | None = None
    """How the choice of the best is accounted."""
    mean_trials: int = 10
    """With --select private: the mean of the number of trials."""
    world: Annotated[str | None, RUNS_CODE] = None
    """The public world in which trials are judged; that of the demonstrations unless given."""
    episodes: int = 100
    """How many episodes a policy is judged on."""
    judge: str = "world"
    """By what trials are judged, which must be public: 'world'; 'released', which is how often they
    do what the sweep's own release does; or a file that 'quorum release' wrote."""
    seeds: int = 3
    """How many trainings of each trial; with --select there is one."""
    first_seed: int = 0
    """The first of them."""
    together: int = 32
    """The most trials that are trained together: fewer need less memory."""
    ray: str | None = None
    """Run the programs on the Ray cluster at this address; 'auto' for that of this machine."""
    folder: Path = Path("runs/sweep")
    """Where everything is written."""
    ledger: Path | None = None
    """With --select: the ledger of these experts; otherwise a research ledger is made."""

    common: ClassVar = ("epsilon", "delta", "learner", "method", "trials", "select", "judge",
                        "world", "seeds", "folder", "ledger", "minimum-experts", "accept",
                        "json")  # fmt: skip

    def run(self) -> None:
        check_seed(self.first_seed)
        from quorum_rl.distributed import prepare

        prepare()
        from quorum_rl.sweep import sweep

        asked, spread = self._asked(), self._spread()
        shown = console(stderr=self.json)
        try:
            with stoppable(shown) as stop, timed_bar(shown, "program") as update:
                made = sweep(
                    asked,
                    self.folder,
                    spread=spread,
                    report=shown.print,
                    progress=_watched(update, stop),
                    command=as_toml(["sweep"], self),
                )
        except Interrupted as stopped:
            again = repeated(["sweep"], self, self.folder / "config.toml")
            raise Interrupted(f"{stopped} Go on with: {again}") from None
        self._show(made)

    def _asked(self) -> "SweepOptions":
        from quorum_rl.logs import open_demonstrations
        from quorum_rl.sweep import Common, Search, SweepOptions

        judge, judge_facts = self._judge()
        search = Search(self.grid, self.random, self.trials, self.search_seed)
        log = open_demonstrations(self.demonstrations).of_at_least(
            self.minimum_experts, self.minimum_trajectories
        )
        experts = self.experts_of(log)
        common = Common(
            epsilon=self.epsilon,
            delta=self.delta,
            settings=self.settings,
            learner=self.chosen_learner(),
            can_query=experts is not None,
            **self.learner_settings(),
        )
        return SweepOptions(
            search=search,
            common=common,
            log=log,
            experts=experts,
            world=self._world(log),
            episodes=self.episodes,
            judge=judge,
            judge_facts=judge_facts,
            seeds=self.seeds,
            first_seed=self.first_seed,
            together=self.together,
            select=self.select,
            mean_trials=self.mean_trials,
            ledger=self.ledger,
            accepted=self.accept,
            diagnostics_not_private=self.diagnostics_not_private,
        )

    def _world(self, log: "Demonstrations") -> str | None:
        """Where trials are judged. A log may name a world of Quorum; only the user names a file,
        because a file is run."""
        from quorum_rl.envs import world_names

        declared = log.declared.world
        if self.world is not None or declared is None or declared in world_names():
            return self.world or declared
        if self.judge != "world":
            return None
        raise QuorumError(
            f"the demonstrations name the world {declared!r}, which is none of Quorum's own: name "
            "it with --world if you trust it, or judge trials by what was released (--judge)."
        )

    def _judge(self) -> "tuple[Judge, dict[str, Any]]":
        """By what trials are judged, and what its file says of where it comes from."""
        if self.judge == "world":
            return "world", {}
        if self.judge == "released":
            return "released", {}
        from quorum_rl.release import read_released_with_facts

        return read_released_with_facts(self.judge)

    def _spread(self) -> "Spread":
        from quorum_rl.sweep import one_by_one

        if self.ray is None:
            return one_by_one
        from quorum_rl.sweep import on_ray

        return on_ray(self.ray)

    def _show(self, made: "Swept") -> None:
        certified = made.certificate
        facts = {
            "folder": str(made.folder),
            "policy": str(made.folder / "winner" / "policy.safetensors"),
            "trials": made.trials,
            "winner": made.trial.choices,
            "score": made.judged.score,
            "epsilon": None if certified is None else certified.epsilon,
            "delta": None if certified is None else certified.delta,
            "statement": None if certified is None else certified.statement,
            "marks": [] if certified is None else list(certified.marks),
        }
        if self.json:
            show_facts(facts, as_json=True)
            return
        chosen = ", ".join(f"{name} = {value}" for name, value in made.trial.choices.items())
        console().print(f"the best, with a score of {made.judged.score:.3f}: {chosen}")
        if certified is not None:
            console().print(certified.statement)
            for mark in certified.marks:
                console().print(f"it is marked: {mark}")
        console().print(f"its policy is in {facts['policy']}")


def _watched(update: "Progress", stop: list[bool]) -> "Progress":
    """A bar, and the way out after Ctrl-C."""

    def progress(done: int, total: int) -> None:
        update(done, total)
        if stop[0]:
            raise Interrupted("stopped; programs that had ended are kept.")

    return progress
