"""What is asked of a sweep."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from quorum_rl.envs import code_of_world
from quorum_rl.errors import PERSON, QuorumError, at_least, require
from quorum_rl.experts import LoggedExperts
from quorum_rl.learners import code_of, learner_to_json
from quorum_rl.logs import Demonstrations
from quorum_rl.pipeline import rounding
from quorum_rl.sweep.judge import Judge, Select, check_judge, named
from quorum_rl.sweep.space import Search
from quorum_rl.sweep.trials import Common, Trial, planned


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """What to try, on whom, and how the best is chosen.

    - `world` is the public simulator that trials are judged in, `episodes` episodes each. It may be
      None where `judge` is not "world": "released" judges them by how often they do what the
      sweep's own release does, and `Released` prefixes of another release by those. The
      certificate is marked unless its ledger holds that release, as `judge_facts` of its file say.
    - `seeds`: without `select`, every trial is run with so many, from `first_seed` on.
    - `together`: at most so many trials are one program.
    - `select`: None for synthetic experts: nothing is charged for the trials, and the winner's
      certificate says so. `public`: every trial is charged. `private`: their number is geometric
      with mean `mean_trials`, and nothing but the best comes out.
    - `diagnostics_not_private` allows trials without noise, for synthetic experts.
    - `ledger`: that of the experts, with `select`; otherwise a research ledger is made.
    """

    search: Search
    common: Common
    log: Demonstrations
    experts: LoggedExperts | None
    world: str | None
    episodes: int = 100
    judge: Judge = "world"
    judge_facts: Mapping[str, Any] = field(default_factory=dict)
    seeds: int = 3
    first_seed: int = 0
    together: int = 32
    select: Select | None = None
    mean_trials: int = 10
    ledger: Path | None = None
    accepted: Sequence[str] = ()
    accepted_by: str | None = None
    diagnostics_not_private: bool = False

    def __post_init__(self) -> None:
        for name in ("episodes", "seeds", "together", "mean_trials"):
            require(name, getattr(self, name), at_least(1))
        if self.accepted_by is not None:
            require("accepted_by", self.accepted_by, PERSON)
        check_judge(self.judge, self.world, self.select, self.log)
        if self.select is None and self.ledger is not None:
            raise QuorumError(
                "a ledger is charged for a selection that is accounted: add --select public or "
                "--select private, or leave --ledger out for synthetic experts."
            )

    def trials(self) -> list[Trial]:
        """All trials of the search."""
        return planned(self.search.all(), self.common, self.log.declared)

    def configuration(self) -> dict[str, Any]:
        """All that decides what a sweep does, as public facts."""
        names = ("world", "episodes", "seeds", "first_seed", "together", "select", "mean_trials")
        usual = self.common.usual_learner(self.log.declared)
        return {
            "search": asdict(self.search),
            "common": asdict(self.common),
            # A world's units may be others in another version, and trials must not mix them.
            "learner": learner_to_json(usual),
            **code_of(usual),
            **self.common.settings.code,
            "declared": asdict(self.log.declared),
            **{name: getattr(self, name) for name in names},
            "judge": named(self.judge),
            "world_code": None if self.world is None else code_of_world(self.world),
            "rounding": rounding(),
        }
