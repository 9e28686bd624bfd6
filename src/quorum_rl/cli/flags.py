"""What several commands are told: flags to inherit, with what they mean."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from quorum_rl import budget, envs, learners, logs, pipeline
from quorum_rl.cli.expert_files import Output, experts_from
from quorum_rl.cli.output import check_new_file, check_picture, show_facts, start_jax
from quorum_rl.cli.parser import RUNS_CODE, Positional
from quorum_rl.errors import QuorumError
from quorum_rl.pipeline import FitSettings, TrackerName, UnitsName

if TYPE_CHECKING:
    from quorum_rl.experts import LoggedExperts, Population

POLICY: Final = "policy.safetensors"  # in the folder of a run
# What a command line can say: an optimiser by name, and of a contribution nothing.
SETTINGS_KINDS: Final = {
    "optimiser": Literal["sgd", "momentum", "adam"] | None,
    "contribution": NoneType,
}
Settings = Annotated[FitSettings, SETTINGS_KINDS]


def given(holder: object, names: str) -> dict[str, Any]:
    """These values of a command, or of anything else, by their names."""
    return {name: getattr(holder, name) for name in names.split()}


def certified_facts(certified: "budget.Certificate | None") -> dict[str, Any]:
    """What a certificate says, for a program; nothing where there is none."""
    names = "epsilon delta statement"
    return dict.fromkeys(names.split()) if certified is None else given(certified, names)


@dataclass(frozen=True, kw_only=True)
class LearnerFlags:
    """Who learns, with which networks, from numbers of which size."""

    learner: Annotated[str, RUNS_CODE] = "auto"
    """How to learn from transitions: bc, cql, bcq, double-dqn, or path/to/file.py:NAME for your
    own; auto imitates (bc), but in the paper's own methods (cql)."""
    hidden: tuple[int, ...] | None = None
    """Sizes of the policy's hidden layers; chosen for the noise unless given."""
    reward_scale: float | None = None
    """What rewards are multiplied by, where not by a world's units; choose it from what is public,
    never from the logs."""
    observation_centre: tuple[float, ...] | None = None
    """What is subtracted from observations, a number for each of theirs, before they are divided by
    --observation-scale: public numbers, never from the logs. Our own worlds have units, which are
    taken unless given here; without numbers, observations stay as they are."""
    observation_scale: tuple[float, ...] | None = None
    """What observations are divided by; see --observation-centre."""

    def chosen_learner(self) -> "pipeline.Named":
        """The learner's name, or what the user's own file calls so."""
        return learner_called(self.learner)

    def learner_settings(self) -> dict[str, Any]:
        """What was given, by the learners' own names; the rest is as they have it."""
        asked = given(self, "reward_scale observation_centre observation_scale")
        asked["hidden_sizes"] = self.hidden
        return {name: value for name, value in asked.items() if value is not None}


def learner_called(name: str) -> "pipeline.Named":
    """The name of one of our learners, or what the user's own file calls so."""
    return learners.learner_in_file(name) if ":" in name else name


@dataclass(frozen=True, kw_only=True)
class AskingFlags:
    """What the experts are asked beside the steps of a fit."""

    judges: float | None = None
    """The share of the experts who judge the policy instead of being learned from, such as 0.15: at
    no further cost, once and for good, by a secret coin for each."""
    return_bounds: tuple[float, ...] | None = None
    """Two public numbers between which an expert's mean return lies: the judges then say what the
    experts and the policy earn, and which is better."""
    choose: Annotated[str | None, RUNS_CODE] = None
    """Learners of which the judges choose one, such as bc,cql: each is trained, and pays its share
    of epsilon. In the place of --learner."""
    units: UnitsName = "auto"
    """What observations and rewards are measured by, where no public numbers say so. auto: what the
    experts say of them, privately, if so many are declared that a part of epsilon suffices;
    private: always, or the fit is refused; public: they stay as they are."""

    def candidates(self) -> "tuple[pipeline.Named, ...]":
        """The learners of which judges choose one; none if they do not."""
        named = [] if self.choose is None else self.choose.split(",")
        return tuple(learner_called(name.strip()) for name in named)


@dataclass(frozen=True, kw_only=True)
class RunFlags(LearnerFlags):
    """What all commands that train are told, wherever the logs are."""

    epsilon: float
    """The most that the policy may cost, all stages together."""
    delta: float
    """The delta of the guarantee."""
    folder: Path = Path("runs/fit")
    """Where everything is written."""
    ledger: Path | None = None
    """The ledger of these experts; otherwise a new one in the folder, with this budget, which they
    belong to from then on."""
    accept: tuple[str, ...] = ()
    """Assumptions that you answer for, by name; an error lists those that your logs need."""
    accepted_by: str | None = None
    """Who answers for them, such as 'A. Weber, data protection': the ledger, the certificate, the
    report and the bundle name them, with the date."""
    json: bool = False
    """Print the facts at the end as JSON, and everything else to the standard error."""
    settings: Settings = field(default_factory=FitSettings)


@dataclass(frozen=True, kw_only=True)
class PolicyFlags(RunFlags):
    """What the commands are told that end in one policy."""

    seed: int | None = None
    """For reproduction only: the noise hides nothing from someone who knows the seed."""
    track: TrackerName | None = None
    """Send public metrics to a dashboard: tensorboard (into the folder), trackio or wandb."""

    def tracked(self) -> "AbstractContextManager[pipeline.Track | None]":
        """Who hears the metrics."""
        return nullcontext() if self.track is None else pipeline.tracker(self.track, self.folder)

    def tell(self, made: "pipeline.Fitted", **more: Any) -> None:
        """Say what came out, and where it is."""
        certified, policy = made.certificate, made.folder / POLICY
        ledger = self.ledger or made.folder / "ledger.jsonl"
        facts = {
            "folder": str(made.folder),
            "policy": str(policy),
            "ledger": None if certified is None else str(ledger),
            **certified_facts(certified),
            **more,
        }
        said = [] if certified is None else [certified.statement]
        show_facts(facts, *said, f"the policy is in {policy}", as_json=self.json)


@dataclass(frozen=True, kw_only=True)
class TrainingFlags(RunFlags):
    """What all commands are told that train on logs of this machine."""

    demonstrations: Annotated[Path, Positional("DEMONSTRATIONS")]
    """What the experts did: a file of 'quorum demos collect' or 'quorum demos import'."""
    minimum_experts: int | None = None
    """How many experts there are at least, where the demonstrations do not declare it."""
    diagnostics_not_private: bool = False
    """I know that the non-private method must not be used on real experts."""


@dataclass(frozen=True, kw_only=True)
class ExpertFlags:
    """Experts who can be asked, where there are any."""

    experts: Annotated[Path | None, Positional("EXPERTS")] = None
    """The experts who did it: a file of 'quorum experts train', or ONNX files (a folder, a pattern
    in quotes, or a .txt file that lists them). Without them nothing is released, and every step has
    noise."""
    experts_output: Output = "probabilities"
    """What ONNX experts answer."""
    minimum_trajectories: int | None = None
    """How many trajectories every expert has at least, where the demonstrations do not declare it:
    a release reserves fewer than that."""

    def experts_of(self, log: "logs.Demonstrations") -> "LoggedExperts | None":
        """The experts as they acted in the demonstrations."""
        if self.experts is None:
            return None
        return experts_from(self.experts, log, self.experts_output)


@dataclass(frozen=True, kw_only=True)
class NewFile:
    """A file to write, and whether it may replace another."""

    out: Path
    """The file to write."""
    overwrite: bool = False
    """Replace the file if it exists."""

    def check_new(self) -> None:
        """Refuse before the work what could not be written after it."""
        check_new_file(self.out, overwrite=self.overwrite)


@dataclass(frozen=True, kw_only=True)
class DiagnosticFlags:
    """A look at private data without noise."""

    picture: Path | None = None
    """Where to draw it: .png or .svg."""
    seed: int = 0
    """Another number, other episodes."""
    json: bool = False
    """Print machine-readable numbers."""
    diagnostics_not_private: bool = False
    """I know that the result is not private and must not be published about real experts."""

    def begin(self, what: str) -> None:
        """Check the flags, and prepare for JAX.

        Raises:
            QuorumError: unless the user said that they know what that means.
        """
        if not self.diagnostics_not_private:
            raise QuorumError(
                f"{what} would be computed from private data without noise: add "
                "--diagnostics-not-private if these are synthetic experts or nobody else will see "
                "it."
            )
        if self.picture is not None:
            check_picture(self.picture)
        start_jax()


@dataclass(frozen=True, kw_only=True)
class WorldFlags:
    """The world in which experts of a file act."""

    world: Annotated[str | None, RUNS_CODE] = None
    """The world, where it is in a Python file of yours: path/to/file.py:NAME."""
    param: dict[str, float] = field(default_factory=dict)
    """World parameters to change, such as --param time_limit 500."""

    def world_of(self, population: "Population") -> "tuple[envs.AnyWorld, Any]":
        """The world and its parameters."""
        world = world_to_use(self.world, population.origin.get("world"), "these experts")
        return world, envs.with_params(world, **self.param)


def usual_floor(p_min: float | None, population: "Population") -> float | None:
    """The floor to smooth to: as given, or 0.02; none where actions are continuous."""
    return 0.02 if p_min is None and not population.action_bounds else p_min


def world_to_use(named: str | None, found: str | None, whose: str) -> "envs.AnyWorld":
    """The world that the user named, or the one that a file names.

    A file may name one of Quorum's own worlds; which Python file is run is up to the user alone.

    Raises:
        QuorumError: if the world of the file is another, and the user named none.
    """
    if named is None and found not in envs.world_names():
        raise QuorumError(
            f"the world of {whose} is {found!r}, which is none of Quorum's own: if you trust its "
            "file, name it with --world path/to/file.py:NAME."
        )
    return envs.get_world(named or str(found))


@dataclass(frozen=True, kw_only=True)
class GymnasiumFlags:
    """A Gymnasium environment in the place of a world."""

    gymnasium: Annotated[str | None, RUNS_CODE] = None
    """Act in this Gymnasium environment instead of the world, such as LunarLander-v3."""
    gymnasium_param: dict[str, float] = field(default_factory=dict)
    """Its parameters to change, such as --gymnasium-param gravity -9.8 enable_wind 1."""

    def check_gymnasium(self) -> None:
        """Refuse settings of a Gymnasium environment where there is none."""
        if self.gymnasium is None and self.gymnasium_param:
            raise QuorumError("--gymnasium-param goes with --gymnasium: name the environment.")
