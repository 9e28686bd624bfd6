"""`quorum sweep`: a search written in a configuration file, and the best of what it tried."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from quorum_rl import envs, logs, release, sweep
from quorum_rl.cli.configuration import as_toml, going_on
from quorum_rl.cli.flags import POLICY, ExpertFlags, TrainingFlags, certified_facts, given
from quorum_rl.cli.output import console, show_facts, start_jax, stoppable_bar
from quorum_rl.cli.parser import FILE_ONLY, RUNS_CODE
from quorum_rl.errors import Interrupted, QuorumError

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
        start_jax()
        asked = self._asked()
        spread = sweep.one_by_one if self.ray is None else sweep.on_ray(self.ray)
        shown = console(stderr=self.json)
        with going_on(["sweep"], self), stoppable_bar(shown, "program") as update:

            def progress(done: int, total: int) -> None:
                if update(done, total):
                    raise Interrupted("stopped; programs that had ended are kept.")

            made = sweep.sweep(
                asked,
                self.folder,
                spread=spread,
                report=shown.print,
                progress=progress,
                command=as_toml(["sweep"], self),
            )
        self._show(made)

    def _asked(self) -> "sweep.SweepOptions":
        judge, judge_facts = self._judge()
        log = logs.open_demonstrations(self.demonstrations).of_at_least(
            self.minimum_experts, self.minimum_trajectories
        )
        experts = self.experts_of(log)
        common = sweep.Common(
            **given(self, "epsilon delta settings"),
            learner=self.chosen_learner(),
            can_query=experts is not None,
            **self.learner_settings(),
        )
        names = "episodes seeds first_seed together select mean_trials ledger "
        return sweep.SweepOptions(
            search=sweep.Search(self.grid, self.random, self.trials, self.search_seed),
            common=common,
            log=log,
            experts=experts,
            world=self._world(log),
            judge=judge,
            judge_facts=judge_facts,
            accepted=self.accept,
            accepted_by=self.accepted_by,
            **given(self, names + "diagnostics_not_private"),
        )

    def _world(self, log: "logs.Demonstrations") -> str | None:
        """Where trials are judged. A log may name a world of Quorum; only the user names a file,
        because a file is run."""
        declared = log.declared.world
        if self.world is not None or declared is None or declared in envs.world_names():
            return self.world or declared
        if self.judge != "world":
            return None
        raise QuorumError(
            f"the demonstrations name the world {declared!r}, which is none of Quorum's own: name "
            "it with --world if you trust it, or judge trials by what was released (--judge)."
        )

    def _judge(self) -> "tuple[sweep.Judge, dict[str, Any]]":
        """By what trials are judged, and what its file says of where it comes from."""
        public: dict[str, sweep.Judge] = {"world": "world", "released": "released"}
        if self.judge in public:
            return public[self.judge], {}
        return release.read_released_with_facts(self.judge)

    def _show(self, made: "sweep.Swept") -> None:
        certified, policy = made.certificate, made.folder / "winner" / POLICY
        facts = {
            "folder": str(made.folder),
            "policy": str(policy),
            "trials": made.trials,
            "winner": made.trial.choices,
            "score": made.judged.score,
            **certified_facts(certified),
            "marks": [] if certified is None else list(certified.marks),
        }
        chosen = ", ".join(f"{name} = {value}" for name, value in made.trial.choices.items())
        said = [f"the best, with a score of {made.judged.score:.3f}: {chosen}"]
        if certified is not None:
            said += [certified.statement, *(f"it is marked: {mark}" for mark in certified.marks)]
        show_facts(facts, *said, f"its policy is in {policy}", as_json=self.json)
