"""`quorum demos`: collect demonstrations, look at them, bring your own."""

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from quorum_rl import experts, logs, report
from quorum_rl.cli.expert_files import Output, experts_from
from quorum_rl.cli.flags import (
    DiagnosticFlags,
    GymnasiumFlags,
    NewFile,
    WorldFlags,
    given,
    usual_floor,
)
from quorum_rl.cli.output import (
    check_new_file,
    console,
    save_picture,
    show_facts,
    start_jax,
)
from quorum_rl.cli.parser import Positional
from quorum_rl.dictionary import Column, Dictionary
from quorum_rl.errors import QuorumError
from quorum_rl.files import replacing

if TYPE_CHECKING:
    from quorum_rl.experts import Population, UnloggedExperts

MINARI = "minari:"


@dataclass(frozen=True, kw_only=True)
class Collect(WorldFlags, GymnasiumFlags, NewFile):
    """Let every expert act, and keep what they did.

    Experts are smoothed to the floor p_min first: afterwards it is too late.

    Example: quorum demos collect cartpole.safetensors --out cartpole.arrow
    """

    experts: Annotated[Path, Positional("EXPERTS")]
    """A file that 'quorum experts train' wrote."""
    out: Path
    """The file to write, Arrow."""
    trajectories: int = 20
    """Episodes per expert."""
    p_min: float | None = None
    """The floor under every action's probability, 0.02 if not given; 0 leaves the experts as they
    are. Continuous actions have none."""
    smoothing: Literal["greedy", "uniform-mixture"] = "greedy"
    """How the floor is reached: near-greedy as in the paper, or mixing with the uniform policy."""
    horizon: int | None = None
    """The time limit of the Gymnasium environment, which you declare."""
    minimum_experts: int | None = None
    """How many experts there are at least: a public fact that the guarantee will count on."""
    seed: int | None = None
    """For reproduction only: without it, chance comes from the operating system."""

    common: ClassVar = ("out", "trajectories", "p-min", "world", "param", "minimum-experts", "seed",
                        "overwrite")  # fmt: skip

    def run(self) -> None:
        self.check_new()
        if (self.gymnasium is None) != (self.horizon is None):
            raise QuorumError("--gymnasium and --horizon go together: give both or neither.")
        if self.gymnasium is not None and (self.param or self.world):
            raise QuorumError(
                "--param and --world do not go with --gymnasium: use --gymnasium-param instead."
            )
        self.check_gymnasium()
        # One process steps Gymnasium's environments.
        is_first = start_jax(together=self.gymnasium is None)
        population = experts.load_population(self.experts)
        acting: experts.UnloggedExperts = population
        if floor := usual_floor(self.p_min, population):
            how: Any = self.smoothing.replace("-", " ")
            acting = experts.smoothed_by(how, population, floor)
        demonstrations = self._collected(population, acting)
        if not is_first:  # all have all
            return
        logs.save_demonstrations(demonstrations, self.out)
        kept = "reproducible chance: not private against who knows the seed; "
        console().print(
            f"{kept if self.seed is not None else ''}{self.trajectories} trajectories of every "
            f"expert, {_acted(demonstrations.declared)}: {self.out}"
        )

    def _collected(
        self, population: "Population", acting: "UnloggedExperts"
    ) -> "logs.Demonstrations":
        options = given(self, "trajectories minimum_experts seed")
        if self.gymnasium is not None:
            options["horizon"] = self.horizon
            place = self.gymnasium, self.gymnasium_param
            return logs.collect_from_gymnasium(acting, *place, **options)[0]
        return logs.collect(acting, *self.world_of(population), **options)[0]


def _acted(declared: "logs.Declared") -> str:
    return "continuous actions" if declared.continuous else f"floor {declared.p_min:g}"


@dataclass(frozen=True)
class Show:
    """Say what was declared about a file of demonstrations; nothing that is private.

    Example: quorum demos show cartpole.arrow
    """

    file: Annotated[Path, Positional("DEMONSTRATIONS")]
    """A file that 'quorum demos collect' or 'quorum demos import' wrote."""
    json: bool = False
    """Print machine-readable facts."""

    def run(self) -> None:
        declared = logs.open_demonstrations(self.file).declared
        facts = asdict(declared)
        if declared.dictionary is not None and not self.json:
            del facts["dictionary"]
            facts["columns"] = "; ".join(column.said for column in declared.dictionary.columns)
            facts["action_labels"] = ", ".join(declared.dictionary.action_labels)
            if declared.continuous:
                each = (f"{low:g} to {high:g}" for low, high in declared.action_bounds)
                facts["action_bounds"] = ", ".join(each)
        agrees = "what the file holds agrees with it"
        show_facts(facts | {"digest": agrees}, as_json=self.json)


@dataclass(frozen=True, kw_only=True)
class Import:
    """Bring your own logs: a Parquet or CSV table with one row per transition, or a Minari dataset.

    Columns: expert, episode, step, observation_0 … (or observation, a list), action, reward,
    terminated, truncated; next_observation_… where you have them. Where they are called otherwise,
    let --sketch write a columns.toml, correct it, and give it with --columns. A Minari dataset has
    the expert of an episode in its metadata.

    Example: quorum demos import visits.parquet --columns columns.toml --horizon 24
    --out visits.arrow
    """

    source: Annotated[str, Positional("SOURCE")]
    """The .parquet or .csv file, or minari:NAME for a Minari dataset on this machine."""
    out: Path | None = None
    """The file to write, Arrow."""
    overwrite: bool = False
    """Replace the file if it exists."""
    sketch: Path | None = None
    """Instead of importing, write a columns.toml to correct here, from the file's schema: no row is
    read."""
    columns: tuple[str, ...] = ()
    """A columns.toml, and what single columns are called where neither it nor the above says so,
    such as --columns columns.toml expert desk observation price,volume."""
    actions: int | None = None
    """How many actions there are: a public fact, so you declare it, by number or by labels. Only a
    file that Quorum exported says this and the next two itself."""
    action_labels: str | None = None
    """All actions that there are, such as wait,treat: the first is action 0. They are published
    with the policy, so they are never taken from rows: only from an ordered category type."""
    action_bounds: tuple[str, ...] = ()
    """Between what each number of a continuous action lies, such as --action-bounds -2:2 0:1."""
    observations: int | None = None
    """How many numbers an observation has, where its columns do not say so."""
    horizon: int | None = None
    """The time limit under which the experts acted: declared, never measured."""
    step_orders: bool = False
    """The step column sorts an episode's rows and does not count them from 0; so do times."""
    fill: dict[str, float] = field(default_factory=dict)
    """What stands for a missing value of a column of the observation, such as --fill glucose=120:
    choose it from what is public."""
    clip: dict[str, str] = field(default_factory=dict)
    """The range to which a column of the observation is cut, such as --clip glucose=40:400: choose
    it from what is public."""
    unit: dict[str, str] = field(default_factory=dict)
    """In what a column of the observation is measured, such as --unit glucose=mg/dL."""
    p_min: float | None = None
    """The floor under every probability of the policies that acted, if you promise one."""
    minimum_experts: int | None = None
    """How many experts there are at least: a public fact that the guarantee will count on."""
    minimum_trajectories: int | None = None
    """How many trajectories every expert has at least: a release then reserves fewer than that."""
    early_truncation_is_public: bool = False
    """I promise that episodes truncated before the horizon followed a public rule."""

    common: ClassVar = ("out", "sketch", "columns", "actions", "action-labels", "action-bounds",
                        "observations", "horizon", "fill", "clip", "minimum-experts",
                        "overwrite")  # fmt: skip

    def run(self) -> None:
        if (self.sketch is None) == (self.out is None):
            raise QuorumError(
                "give --out, the file to write, or --sketch, a columns.toml to begin."
            )
        if self.sketch is not None and self.sketch.suffix != ".toml":
            raise QuorumError(f"--sketch is {str(self.sketch)!r}: give a name that ends in .toml.")
        target = Path(str(self.sketch or self.out))
        check_new_file(target, overwrite=self.overwrite)
        if self.sketch is not None:
            self._sketch(target)
            return
        columns, named = self._columns()
        declared = self._declared(columns, named)
        if self.source.startswith(MINARI):
            demonstrations = logs.read_minari(self.source.removeprefix(MINARI), declared)
        else:
            demonstrations = logs.read_table(Path(self.source), declared, columns)
        settled = demonstrations.of_at_least(self.minimum_experts, self.minimum_trajectories)
        logs.save_demonstrations(settled, target)
        console().print(f"imported: {target}")
        if self.horizon is not None and settled.declared.horizon != self.horizon:
            console().print(
                f"the horizon is {settled.declared.horizon} and not {self.horizon}: nothing says "
                "what came after the last step, so all episodes that lasted so long were cut "
                "before it; columns of next observations would keep it"
            )

    def _sketch(self, target: Path) -> None:
        if self.source.startswith(MINARI):
            raise QuorumError(
                "a Minari dataset says itself what its columns are: leave --sketch out."
            )
        text = logs.sketch_columns(logs.schema_of(self.source), Path(self.source).name)
        with replacing(target) as temporary:
            temporary.write_text(text, encoding="utf-8")
        console().print(f"sketched: {target}; correct it, then import with --columns {target}")

    def _columns(self) -> tuple["logs.TableColumns", Dictionary]:
        """What --columns and --step-orders say."""
        words, columns, named = list(self.columns), logs.TableColumns(), Dictionary()
        if words and words[0].endswith(".toml"):
            columns, named = logs.read_columns(Path(words.pop(0)))
        if len(words) % 2:
            raise QuorumError(
                f"--columns has {' '.join(self.columns)!r}: give a .toml file, then pairs, each a "
                "role and the name of a column."
            )
        if self.source.startswith(MINARI) and (words or self.step_orders):
            raise QuorumError(
                "a Minari dataset has no columns to be named and no steps to be sorted: leave "
                "--step-orders out, and all of --columns but a columns.toml."
            )
        roles = {
            role: name.split(",") if "," in name else name
            for role, name in zip(words[::2], words[1::2], strict=True)
        }
        columns = logs.columns_named(roles, columns)
        if "observation" in roles:
            names = columns.observation
            listed = (names,) if isinstance(names, str) else names
            known = {column.name: column for column in named.columns}
            kept = tuple(known[name] for name in listed if name in known)
            whole = tuple(known.get(name) or Column(name) for name in listed) if kept else ()
            named = replace(named, columns=whole)
        return replace(columns, step_orders=columns.step_orders or self.step_orders), named

    def _declared(self, columns: "logs.TableColumns", named: Dictionary) -> "logs.Declared | None":
        """All that was declared; None where it is left to the file."""
        labels = named.action_labels
        if self.action_labels is not None:
            labels = tuple(self.action_labels.split(","))
        bounds = tuple(logs.range_in(text, "one of --action-bounds") for text in self.action_bounds)
        bounds = bounds or named.action_bounds
        if bounds and not labels and not isinstance(columns.action, str):
            labels = columns.action
        facts = given(self, "fill clip unit")
        about = (self.actions, self.observations, self.horizon, self.p_min)
        if about == (None,) * 4 and not (any(facts.values()) or labels or bounds or named.columns):
            return None
        count = len(bounds) or len(labels) or None if self.actions is None else self.actions
        if self.horizon is None or count is None:
            raise QuorumError(
                "--horizon and --actions (or --action-labels, or --action-bounds) go together, "
                "with --observations where the columns do not say how many numbers they have: give "
                "all."
            )
        if self.source.startswith(MINARI):
            seen = named.columns or logs.minari_columns(self.source.removeprefix(MINARI))
        else:
            schema = logs.schema_of(self.source)
            seen = logs.observed_columns(schema, columns, named, self.observations)
        seen = logs.with_facts(seen, **facts)
        telling = labels or bounds or logs.worth_keeping(seen)
        kept = Dictionary(seen, labels, bounds) if telling else None
        names = "horizon p_min minimum_experts minimum_trajectories early_truncation_is_public"
        size = Dictionary(seen).size if self.observations is None else self.observations
        return logs.Declared(
            action_count=count, observation_size=size, dictionary=kept, **given(self, names)
        )


@dataclass(frozen=True)
class Export:
    """Write demonstrations as a Parquet or CSV table, or as a Minari dataset.

    Example: quorum demos export cartpole.arrow --out cartpole.parquet
    """

    file: Annotated[Path, Positional("DEMONSTRATIONS")]
    """A file of demonstrations."""
    out: str
    """The .parquet or .csv file to write, or minari:NAME for a new Minari dataset."""
    overwrite: bool = False
    """Replace the file if it exists."""

    def run(self) -> None:
        if self.out.startswith(MINARI):
            logs.write_minari(logs.open_demonstrations(self.file), self.out.removeprefix(MINARI))
        else:
            check_new_file(Path(self.out), overwrite=self.overwrite)
            logs.write_table(logs.open_demonstrations(self.file), Path(self.out))
        console().print(f"exported: {self.out}")


@dataclass(frozen=True, kw_only=True)
class Agreement(DiagnosticFlags):
    """Measure how long the experts agree along sampled trajectories, and draw the curve.

    This looks at private data without noise: it needs --diagnostics-not-private.

    Example: quorum demos agreement cartpole.arrow cartpole.safetensors --picture a.png
    --diagnostics-not-private
    """

    file: Annotated[Path, Positional("DEMONSTRATIONS")]
    """A file of demonstrations."""
    experts: Annotated[Path, Positional("EXPERTS")]
    """The experts who made them: a file of 'quorum experts train', or ONNX files (a folder, a
    pattern in quotes, or a .txt file that lists them)."""
    experts_output: Output = "probabilities"
    """What ONNX experts answer."""
    samples: int = 200
    """How many trajectories are sampled."""

    def run(self) -> None:
        self.begin("the agreement of the experts")
        log = logs.open_demonstrations(self.file)
        acting = experts_from(self.experts, log, self.experts_output)
        curve = logs.agreement_curve(acting, log, trajectories=self.samples, seed=self.seed)
        said = [
            f"{steps:>5} steps: mean agreement {curve.mean[steps - 1]:.4f}"
            for steps in (1, 5, 10, 20, 40, 100, 200)
            if steps <= len(curve.mean)
        ]
        facts = {"mean": curve.mean.tolist(), "quantiles": curve.quantiles.tolist()}
        show_facts(facts, *said, as_json=self.json)
        if self.picture is not None:
            title = f"{log.declared.world or self.file.name}, floor {log.declared.p_min}"
            save_picture(report.draw_agreement(curve, title), self.picture)
