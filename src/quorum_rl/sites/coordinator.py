"""The coordinator: the plan, the ledger, the noise and the steps, and none of the logs."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from quorum_rl.budget import Budget, Witness, read_ledger
from quorum_rl.errors import QuorumError, Rule, at_least, require
from quorum_rl.learners import DenseLearner, Learner
from quorum_rl.logs import Declared, declared_from_json
from quorum_rl.pipeline import (
    Elsewhere,
    FitPlan,
    FitSettings,
    Fitted,
    ReportLine,
    RunContext,
    RunOptions,
    StepProgress,
    Track,
    asked_learner,
    fit_elsewhere,
    plan_fit,
)
from quorum_rl.sites.sums import SumsOfRounds, check_room
from quorum_rl.sites.task import Facts, Sites, Task, sent, task_numbers
from quorum_rl.training import SummedElsewhere, default_chunk

SITE: Final = Rule(
    "a name of at most 64 letters, digits, dots, dashes and underscores",
    lambda name: re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name) is not None,
)
ALIKE: Final = ("observation_size", "action_count", "world", "world_params", "dictionary")
TRUST: Final = (
    "sums: plain. The coordinator sees each site's sum without noise, and draws the noise: it is "
    "trusted by everybody. A site sees the parameters of every round, which have noise, and is "
    "trusted by its own experts alone"
)


@dataclass(frozen=True)
class Agreement:
    """What is declared of the sites: how many experts each has at most, and how many must answer.

    Experts are numbered in the order of the sites here.

    Raises:
        QuorumError: for no site, a number below one, or a minimum that is more than there are.
    """

    most_experts: Mapping[str, int]
    minimum_sites: int

    def __post_init__(self) -> None:
        require("the number of sites", len(self.most_experts), at_least(1))
        require("minimum_sites", self.minimum_sites, at_least(1))
        for name, most in self.most_experts.items():
            require("the name of a site", name, SITE)
            require(f"the most experts of {name!r}", most, at_least(1))
        if self.minimum_sites > len(self.most_experts):
            raise QuorumError(
                f"minimum_sites is {self.minimum_sites}, and there are "
                f"{len(self.most_experts)} sites: give at most so many."
            )

    def to_json(self) -> dict[str, Any]:
        return {
            "most_experts": dict(self.most_experts),
            "minimum_sites": self.minimum_sites,
            "sums": "plain",
        }

    def in_words(self) -> str:
        """Who takes part, and who is trusted with what."""
        every = ", ".join(f"{name} (at most {most})" for name, most in self.most_experts.items())
        return f"sites: {every}; each round needs {self.minimum_sites} of them\n{TRUST}"


def fit_at_sites(
    sites: Sites,
    agreement: Agreement,
    *,
    minimum_experts: int,
    epsilon: float,
    delta: float,
    budget: Budget | None = None,
    learner: str | type[DenseLearner] | Learner = "auto",
    learner_settings: Mapping[str, Any] | None = None,
    settings: FitSettings | None = None,
    folder: str | Path = "runs/fit",
    accepted: Sequence[str] = (),
    accepted_by: str | None = None,
    seed: int | None = None,
    report: ReportLine = print,
    progress: StepProgress | None = None,
    track: Track | None = None,
    command: str | None = None,
) -> Fitted:
    """Learn one policy from logs at sites of their own, as `fit` does from those of one machine.

    With all experts at sites that answer, the policy has the bits of a `fit` with the same keys,
    where chunks have one shape and machines round alike. A site that does not answer, or not as an
    honest one could, counts as zero in that round. `minimum_experts` are at all sites together; for
    the other options see `fit`.

    The same call goes on where an interrupted one stopped, with the sites that are there.

    Guarantee: as `fit`, for an expert of any site that is honest, whatever the other sites send, if
    the coordinator is. Nothing is asked of the sites but declared facts before the ledger is
    charged.

    Raises:
        QuorumError: as `fit`, or if the sites declare other facts.
        Interrupted: if too few sites answered in a round, or `progress` asked for it.
    """
    declared = common(sites, agreement, minimum_experts)
    asked = settings or FitSettings()
    check_settings(asked)
    own = asked_learner(declared, asked, (epsilon, delta), learner, learner_settings)
    plan = plan_at_sites(
        plan_fit(declared, own, epsilon=epsilon, delta=delta, settings=asked, can_query=False),
        agreement,
    )
    unpaid = Witness("", "", "production", None, 0, None)
    check_room(tasks_of(plan, agreement, declared, "", unpaid).values())  # before the charge

    def source(run: RunContext) -> SummedElsewhere:
        path = run.folder.ledger if budget is None else budget.ledger
        charged = replace(Witness.of_ledger(read_ledger(path), path), path=None)
        sums = SumsOfRounds(
            sites,
            tasks_of(plan, agreement, declared, run.name, charged),
            folder=run.folder.private / "sums",
            minimum_sites=agreement.minimum_sites,
            report=report,
        )
        return SummedElsewhere(declared, sums.ask)

    report(agreement.in_words())
    elsewhere = Elsewhere(agreement.to_json(), source)
    options = RunOptions(
        folder, accepted, accepted_by, seed, report, progress, track, command, elsewhere
    )
    return fit_elsewhere(plan, declared, budget, options)


def check_settings(settings: FitSettings) -> None:
    """Refuse what sums from sites are not for.

    Raises:
        QuorumError: for a method with steps on released data or none with noise, or a sample of
            experts: sites know their keys, and a draw that others know hides nobody.
    """
    filled = settings.filled()
    if filled.method not in ("local", "solve", "dp-sgd") or filled.mode == "paper":
        raise QuorumError(
            f"the method {filled.method} does not go with sites: give local, solve or dp-sgd."
        )
    if filled.sampling_rate != 1:
        raise QuorumError(
            f"sampling_rate is {filled.sampling_rate:g}, and sites would know who is drawn: give 1."
        )


def plan_at_sites(plan: FitPlan, agreement: Agreement) -> FitPlan:
    """The same plan, with chunks that suit the experts of one site."""
    assert plan.private is not None  # of the methods that go with sites
    most = max(agreement.most_experts.values())
    chunk = default_chunk(most, 1.0, plan.private.contribution.transitions)
    return replace(plan, private=replace(plan.private, chunk=chunk))


def tasks_of(
    plan: FitPlan, agreement: Agreement, declared: Declared, run: str, ledger: Witness
) -> dict[str, Task]:
    """What each site does in a run.

    Raises:
        QuorumError: if learner or contribution cannot be sent.
    """
    assert plan.private is not None  # of the methods that go with sites
    learner = sent(plan.learner, plan.private.contribution)
    tasks, first = {}, 0
    for name, most in agreement.most_experts.items():
        tasks[name] = Task(
            run=run,
            rounds=plan.private_steps,
            epsilon=plan.epsilon,
            delta=plan.delta,
            learner=learner,
            observation_size=declared.observation_size,
            action_count=declared.action_count,
            first=first,
            most=most,
            ledger=ledger,
            **task_numbers(plan.private),
        )
        first += most
    return tasks


def common(sites: Sites, agreement: Agreement, minimum_experts: int) -> Declared:
    """What the logs of all sites that are there have in common.

    Raises:
        QuorumError: if too few are there, or two declare other facts, naming them.
    """
    together = sum(agreement.most_experts.values())
    if minimum_experts > together:
        raise QuorumError(
            f"minimum_experts is {minimum_experts}, and the sites declare {together} at most: give "
            "fewer."
        )
    said = sites.facts(list(agreement.most_experts))
    found = {name: said[name] for name in agreement.most_experts if name in said}
    if len(found) < agreement.minimum_sites:
        raise QuorumError(
            f"{len(found)} of the sites are there ({', '.join(found) or 'none'}), and "
            f"{agreement.minimum_sites} must be: start the others; nothing was charged."
        )
    declared = {name: _declared(name, facts, agreement) for name, facts in found.items()}
    (first, theirs), *others = declared.items()
    for name, own in others:
        for fact in ALIKE:
            if getattr(own, fact) != getattr(theirs, fact):
                raise QuorumError(
                    f"the sites {first!r} and {name!r} declare different values of {fact}: their "
                    "logs must have the same columns; nothing was charged."
                )
    shown = json.dumps([agreement.to_json()["most_experts"], *map(str, (theirs.world,))])
    return replace(
        theirs,
        horizon=max(one.horizon for one in declared.values()),
        minimum_experts=minimum_experts,
        minimum_trajectories=None,
        experts_identity=None,
        # Of the sites together: their next fit belongs to the same ledger.
        identity=hashlib.sha256(shown.encode()).hexdigest()[:32],
    )


def _declared(name: str, facts: Facts, agreement: Agreement) -> Declared:
    """What a site declares, if it is what the coordinator was told of it."""
    try:
        most, declared = int(facts["most"]), declared_from_json(facts["declared"].encode())
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise QuorumError(
            f"what the site {name!r} says of itself is unreadable: install the same Quorum there."
        ) from error
    if most != agreement.most_experts[name]:
        raise QuorumError(
            f"the site {name!r} declares {most} experts at most, and the coordinator "
            f"{agreement.most_experts[name]}: agree on one number; nothing was charged."
        )
    return declared
