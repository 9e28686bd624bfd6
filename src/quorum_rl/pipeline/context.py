"""What the stages of a run share, and what all processes of a run must agree on."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import jax
import numpy as np
import scipy

from quorum_rl.budget import (
    Entropy,
    KeyedEntropy,
    Ledger,
    check_committed,
    check_contents,
    commitments,
)
from quorum_rl.distributed import is_single_process, this_machine
from quorum_rl.errors import QuorumError
from quorum_rl.experts import LoggedExperts, UnloggedExperts
from quorum_rl.json_files import read_config
from quorum_rl.judging import Judges
from quorum_rl.learners import DenseLearner, Learner, code_of, learner_to_json
from quorum_rl.logs import Demonstrations, salted_digest
from quorum_rl.pipeline.folder import RunFolder
from quorum_rl.pipeline.learner_rule import asked_learner
from quorum_rl.pipeline.metrics import Track
from quorum_rl.pipeline.plan import FitPlan, Stage
from quorum_rl.pipeline.planning import plan_fit
from quorum_rl.pipeline.settings import FitSettings, UnitsName
from quorum_rl.pipeline.units import units_to_ask
from quorum_rl.privacy import event_to_json
from quorum_rl.release import experts_who_acted, released_digest
from quorum_rl.training import SummedElsewhere
from quorum_rl.types import Released

ASKED: Final = 8  # experts whose answers processes compare
LIMITS: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

ReportLine: TypeAlias = Callable[[str], None]
StepProgress: TypeAlias = Callable[[int, int], bool | None]


@dataclass(frozen=True)
class Elsewhere:
    """Logs that stay at sites of their own: what is declared of these, and who asks for sums.

    `source` is called once everything is paid for, before the first step.
    """

    sites: Mapping[str, Any]
    source: "Callable[[RunContext], SummedElsewhere]"


@dataclass(frozen=True)
class RunOptions:
    """How a run is carried out, whatever it learns; see `fit`. `elsewhere` is where logs are."""

    folder: str | Path
    accepted: Sequence[str]
    accepted_by: str | None
    seed: int | None
    report: ReportLine
    progress: StepProgress | None
    track: Track | None
    command: str | None
    elsewhere: Elsewhere | None = None

    @property
    def at_sites(self) -> dict[str, Any]:
        """What charge and configuration say of the sites, where there are some."""
        return {} if self.elsewhere is None else {"sites": dict(self.elsewhere.sites)}


@dataclass(frozen=True)
class RunContext:
    """What the stages of one run share. `keys` are SECRET."""

    folder: RunFolder
    plan: FitPlan
    options: RunOptions
    entropy: Entropy
    keys: dict[str, list[int]]

    @property
    def name(self) -> str:
        """What the ledger calls this run."""
        return self.folder.name()

    def report(self, line: str) -> None:
        self.options.report(line)

    @property
    def committed(self) -> dict[str, str]:
        """What every charge of this run holds of its keys and of what it does with them."""
        return commitments(self.keys, read_config(self.folder.path))

    def check_and_keep_keys(self, ledger: Ledger, log: Demonstrations) -> None:
        """Keep the keys, unless the ledger was charged for other ones, or for another log, or the
        run began under another ledger: that has other judges.

        Raises:
            QuorumError: if it was; nothing is charged then.
        """
        record, reproducible = ledger.record, self.entropy.reproducible
        check_committed(record, self.name, self.committed, reproducible=reproducible)
        kept, now = self.folder.kept_contents(), salted_digest(log, self.keys["salt"])
        if kept.get("ledger", record.identity) != record.identity:
            raise QuorumError(
                f"{str(self.folder.path)!r} was begun under the ledger {kept['ledger']}, not "
                f"{record.identity}: go on with that, or choose another folder; nothing was "
                "charged."
            )
        # Who knows the seed may delete what was kept; the certificate says what that is worth.
        before = kept.get("log", now if reproducible else None)
        check_contents(record, self.name, before, now)
        self.folder.keep_keys(self.keys, kept | {"log": now, "ledger": record.identity})

    def check_and_keep_released(self, ledger: Ledger, released: Released) -> None:
        """Keep which prefixes the private steps learn beside.

        Raises:
            QuorumError: if they were others before the run was interrupted.
        """
        self._check_and_keep(ledger, "released", released_digest(released))

    def check_and_keep_experts(self, ledger: Ledger, experts: LoggedExperts) -> None:
        """Keep what the experts hold who are asked for the release, as far as that is known.

        Raises:
            QuorumError: if it was something else before the run was interrupted.
        """
        self._check_and_keep(ledger, "experts", experts.digest())

    def _check_and_keep(self, ledger: Ledger, what: str, now: str) -> None:
        kept = self.folder.kept_contents()
        check_contents(ledger.record, self.name, kept.get(what, now), now)
        if kept.get(what) != now:
            self.folder.keep_keys(self.keys, kept | {what: now})

    @property
    def release_entropy(self) -> Entropy:
        """Where a release's noise comes from: the same bits whenever the run goes on."""
        return self.entropy if self.entropy.reproducible else KeyedEntropy(self.keys["release"])

    def charged(self, ledger: Ledger, stage: Stage) -> bool:
        """Whether this run has paid for this stage already: stages pay one after the other, so a
        charge may be for an earlier one that costs the same."""
        stages = self.plan.stages
        place, event = list(stages).index(stage), stages[stage]
        own = [charge.event for charge in ledger.record.charges if charge.run == self.name]
        return own.count(event) > list(stages.values())[:place].count(event)


def planned(
    demonstrations: Demonstrations,
    experts: LoggedExperts | UnloggedExperts | None,
    *,
    epsilon: float,
    delta: float,
    minimum_experts: int | None,
    minimum_trajectories: int | None,
    learner: str | type[DenseLearner] | Learner,
    learner_settings: Mapping[str, Any] | None,
    settings: FitSettings | None,
    judges: Judges | None = None,
    units: UnitsName = "auto",
    diagnostics_not_private: bool,
) -> tuple[FitPlan, Demonstrations, LoggedExperts | None]:
    """The plan of a fit, from what is declared, and what it is of."""
    settings = settings or FitSettings()
    check_noisy([settings], diagnostics_not_private)
    demonstrations = demonstrations.of_at_least(minimum_experts, minimum_trajectories)
    if isinstance(experts, UnloggedExperts):
        experts = experts_who_acted(experts, demonstrations)
    declared = demonstrations.declared
    made = asked_learner(declared, settings, (epsilon, delta), learner, learner_settings)
    plan = plan_fit(
        declared,
        made,
        epsilon=epsilon,
        delta=delta,
        settings=settings,
        can_query=experts is not None,
        judges=judges,
        asking=units_to_ask(
            units, declared, settings, made, called=learner, given=learner_settings
        ),
    )
    if plan.events:
        demonstrations.check_usable(declared.minimum_experts, plan.trajectories_needed)
    return plan, demonstrations, experts


def check_noisy(settings: Iterable[FitSettings], diagnostics_not_private: bool) -> None:
    """Refuse settings without noise, unless somebody says that they are wanted.

    Raises:
        QuorumError: naming what to say.
    """
    if not diagnostics_not_private and any(chosen.method == "non-private" for chosen in settings):
        raise QuorumError(
            "the non-private method looks at the logs without noise: for synthetic experts say "
            "diagnostics_not_private=True (--diagnostics-not-private)."
        )


def said_by_all(
    plan: FitPlan, demonstrations: Demonstrations, experts: LoggedExperts | None, seed: int | None
) -> dict[str, Any]:
    """What every process of a run must say alike: the run, whom it would ask, and where. SENSITIVE.

    Experts whom the log names need no more than their name. That of others may be as new as the
    process, so some of them are asked about a state that they have met.
    """
    facts = configuration(plan, demonstrations, seed)
    if experts is None or plan.release is None:
        return facts
    facts["experts"] = len(experts), experts.observation_size, experts.action_count, experts.p_min
    if demonstrations.declared.experts_identity == experts.identity:
        return facts | {"acted": experts.identity}
    state = demonstrations.columns.observations[:1]
    some = sorted({len(experts) * part // ASKED for part in range(ASKED)})
    try:
        answers = [experts.probabilities_of(slice(i, i + 1), state).ravel() for i in some]
    except Exception as error:  # such as of another world: the others are waiting to hear it
        return facts | {"answers": str(error)}
    return facts | {"answers": np.round(answers, 3).tolist()}  # whatever the last bits are


def rounding() -> dict[str, Any]:
    """What decides how floats round here, as public facts.

    A run that went on where they round otherwise would add its noise to other sums.
    """
    return {
        "machine": this_machine(),
        "libraries": _libraries(),
        "devices": len(jax.devices()),
        "threads": _threads(),
        "flags": _flags(),
    }


def _libraries() -> str:
    """Those that round what units, values and judges tell."""
    return f"numpy {np.__version__}, scipy {scipy.__version__}"


def _threads() -> str | None:
    """How many share large sums, each with a part of the terms."""
    if not is_single_process():
        return None  # others' machines may have more; on a GPU that changes nothing
    some = (
        os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    )
    limits = [f"{name} {os.environ[name]}" for name in LIMITS if name in os.environ]
    return ", ".join([f"{len(some)} processors", *limits])


def _flags() -> list[str]:
    """What was said to XLA and JAX that changes how they compile."""
    kinds = "jax_enable_x64", "jax_default_matmul_precision"
    said = [f"{kind} {value}" for kind in kinds if (value := getattr(jax.config, kind))]
    return sorted(os.environ.get("XLA_FLAGS", "").split()) + said


def configuration(
    plan: FitPlan, demonstrations: Demonstrations, seed: int | None
) -> dict[str, Any]:
    """All that decides what a run does, as public facts."""
    asked = {} if plan.judging is None else {"judges": plan.judging.to_json()}
    asked |= {} if plan.units is None else {"units": plan.units.to_json()}
    return asked | {
        "epsilon": plan.epsilon,
        "delta": plan.delta,
        "settings": plan.settings.to_json(),
        "learner": learner_to_json(plan.learner),
        **code_of(plan.learner),
        **plan.settings.code,
        "declared": asdict(demonstrations.declared),
        "events": [event_to_json(event) for event in plan.events],
        "reproducible": seed is not None,
        "rounding": rounding()
        | {"chunk": None if plan.private is None else plan.private.shape.size},
    }
