"""HIV treatment: choose, every twenty days, which of two drugs a patient takes.

Physics: the six equations of Adams et al. (2004) as used by Ernst et al. (2006): healthy and
infected cells of two kinds, free virus, and the immune response, which has to be trained by
pausing the drugs. The equations are stiff (rates up to 192 a day), so each step takes a
fixed number of Rosenbrock sub-steps, whose linear systems are solved in closed form.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from quorum_rl.envs.integrators import rodas_4
from quorum_rl.envs.world import Array, Facts, Key, Spaces, Step, Units, grid
from quorum_rl.pytree import pytree

# Names follow the equations; per millilitre and day.
LAMBDA_1: Final = 1e4  # births of healthy cells of kind 1
LAMBDA_2: Final = 31.98
DEATH: Final = 0.01  # of healthy cells
F: Final = 0.34  # drug 1 acts on kind 2 with this fraction of its efficacy
K_1: Final = 8e-7  # infection rates
K_2: Final = 1e-4
DELTA: Final = 0.7  # death of infected cells
M: Final = 1e-5  # clearance by the immune response
N_T: Final = 100.0  # virions per dying infected cell
C: Final = 13.0  # death of virus
RHO: Final = 1.0  # virions used up per infection
LAMBDA_E: Final = 1.0
B_E: Final = 0.3  # growth of the immune response
K_B: Final = 100.0
D_E: Final = 0.25  # its impairment
K_D: Final = 500.0
DELTA_E: Final = 0.1  # its decay

UNHEALTHY_START: Final = (163573.0, 5.0, 11945.0, 46.0, 63919.0, 24.0)
EFFICACY: Final = ((0.0, 0.0), (0.7, 0.0), (0.0, 0.3), (0.7, 0.3))  # of both drugs, per action
SMALLEST: Final = 1e-20  # keeps the logarithm finite should rounding reach zero


class Concentrations(NamedTuple):
    """The six variables of the equations."""

    healthy_1: Array
    healthy_2: Array
    infected_1: Array
    infected_2: Array
    virus: Array
    immune: Array


@pytree
class HivParams:
    penalty_drug_1: float = 20000.0
    penalty_drug_2: float = 2000.0
    efficacy_noise: float = 0.0  # standard deviation, on administered drugs only
    days_per_step: float = 20.0
    time_limit: int = 50


@pytree
class HivState:
    concentrations: Concentrations
    time: Array


@dataclass(frozen=True)
class Hiv:
    """The world; see the module's text. `substeps` is the number of Rosenbrock steps per step."""

    substeps: int = 100
    copies_at_once: ClassVar[int] = 256  # on a CPU: their 57 numbers each stay in the cache
    name: ClassVar[str] = "HIV"
    spaces: ClassVar[Spaces] = Spaces(
        observation_names=(
            "log10 healthy cells 1",
            "log10 healthy cells 2",
            "log10 infected cells 1",
            "log10 infected cells 2",
            "log10 virus",
            "log10 immune response",
        ),
        low=(math.log10(SMALLEST),) * 6,
        high=(10.0,) * 6,
        action_names=("no drug", "drug 1", "drug 2", "both drugs"),
    )
    facts: ClassVar[Facts] = Facts(
        random_return=1.503e6,
        random_source="measured: mean of 10,000 episodes, standard error 5,200",
        reference_return=7.361e9,
        reference_source="the best schedule of drugs that a beam search found (width 256; 2048 "
        "finds the same), played by a closed-loop network of 16 tanh units trained to choose it; "
        "nothing is random in the default world, so one episode is exact",
        demonstration_time_limit=50,
        evaluation_time_limit=50,
    )
    units: ClassVar[Units] = Units(
        centre=(5.60, 2.13, 2.32, 1.10, 3.04, 2.92),
        scale=(0.30, 0.81, 1.33, 0.74, 1.28, 1.70),
        reward_scale=1e-8,  # of steps that pay up to hundreds of millions
    )

    def default_params(self) -> HivParams:
        return HivParams()

    def settings(self) -> HivParams:
        """Penalty on drug 1 (50 values) × on drug 2 (20 values) × efficacy noise (0 or 0.01)."""
        return grid(
            self.default_params(),
            penalty_drug_1=np.linspace(18750, 21250, 50),
            penalty_drug_2=np.linspace(1850, 2150, 20),
            efficacy_noise=np.array([0.0, 0.01]),
        )

    def reset(self, key: Key, params: HivParams) -> tuple[HivState, Array]:
        """Every patient starts in the same unhealthy steady state."""
        del key, params
        start = Concentrations(*(jnp.float32(value) for value in UNHEALTHY_START))
        state = HivState(start, time=jnp.int32(0))
        return state, _observe(start)

    def step(self, key: Key, state: HivState, action: Array, params: HivParams) -> Step[HivState]:
        dose = jnp.asarray(EFFICACY, jnp.float32)[action]
        efficacy = administered(key, dose, params.efficacy_noise)
        time_step = jnp.asarray(params.days_per_step / self.substeps, jnp.float32)
        equations = Equations.under(efficacy[0], efficacy[1])

        def substep(now: Concentrations, _: None) -> tuple[Concentrations, None]:
            return rodas_4(equations.derivative, equations.solver, now, time_step), None

        after, _ = jax.lax.scan(substep, state.concentrations, length=self.substeps)
        after = Concentrations(*(jnp.maximum(value, SMALLEST) for value in after))
        penalty = params.penalty_drug_1 * dose[0] ** 2 + params.penalty_drug_2 * dose[1] ** 2
        time = state.time + 1
        return Step(
            state=HivState(after, time),
            observation=_observe(after),
            reward=1000.0 * after.immune - 0.1 * after.virus - penalty,
            terminated=jnp.bool_(False),
            truncated=time >= params.time_limit,
        )


def administered(key: Key, dose: Array, noise: float | Array) -> Array:
    """The efficacy that acts: each drug that is given varies by `noise` within [0, 1]."""
    varied = dose + noise * jax.random.normal(key, (2,), jnp.float32)
    return jnp.where(dose > 0, jnp.clip(varied, 0.0, 1.0), 0.0)


class Equations(NamedTuple):
    """The six equations under given drugs: their derivative, and the solver of their Jacobian."""

    infection_1: Array  # k1 after drug 1
    infection_2: Array
    production: Array  # virions per infected cell and day, after drug 2

    @classmethod
    def under(cls, efficacy_1: Array, efficacy_2: Array) -> "Equations":
        return cls(
            infection_1=(1 - efficacy_1) * K_1,
            infection_2=(1 - F * efficacy_1) * K_2,
            production=(1 - efficacy_2) * N_T * DELTA,
        )

    def derivative(self, now: Concentrations) -> Concentrations:
        infected = now.infected_1 + now.infected_2
        new_1 = self.infection_1 * now.virus * now.healthy_1
        new_2 = self.infection_2 * now.virus * now.healthy_2
        growth = B_E * infected / (infected + K_B) - D_E * infected / (infected + K_D) - DELTA_E
        return Concentrations(
            healthy_1=LAMBDA_1 - DEATH * now.healthy_1 - new_1,
            healthy_2=LAMBDA_2 - DEATH * now.healthy_2 - new_2,
            infected_1=new_1 - (DELTA + M * now.immune) * now.infected_1,
            infected_2=new_2 - (DELTA + M * now.immune) * now.infected_2,
            virus=self.production * infected - C * now.virus - RHO * (new_1 + new_2),
            immune=LAMBDA_E + growth * now.immune,
        )

    def solver(
        self, now: Concentrations, shift: Array
    ) -> Callable[[Concentrations], Concentrations]:
        """Solves (shift·I − J(now)) x = right.

        Healthy cells depend on virus alone, infected cells on those, virus and immune response:
        eliminating them in that order leaves two equations in two unknowns. Writing
        1 − aV/(shift + d + aV) as (shift + d)/(shift + d + aV) keeps float32 from cancelling.

        It divides where it could multiply with an inverse: XLA computes a product again for every
        number that needs it, but a quotient only once. That makes a step five times cheaper.
        """
        a_v, b_v = self.infection_1 * now.virus, self.infection_2 * now.virus
        a_t, b_t = self.infection_1 * now.healthy_1, self.infection_2 * now.healthy_2
        free = shift + DEATH
        total = now.infected_1 + now.infected_2
        response = now.immune * (B_E * K_B / (total + K_B) ** 2 - D_E * K_D / (total + K_D) ** 2)
        growth = B_E * total / (total + K_B) - D_E * total / (total + K_D) - DELTA_E
        death = shift + DELTA + M * now.immune
        # healthy = alone − by_virus·virus, infected = alone + by_virus·virus − by_immune·immune
        healthy_1_by_virus, healthy_2_by_virus = a_t / (free + a_v), b_t / (free + b_v)
        infected_1_by_virus = free * healthy_1_by_virus / death
        infected_2_by_virus = free * healthy_2_by_virus / death
        by_immune = M / death
        by_virus = infected_1_by_virus + infected_2_by_virus
        # Two equations are left, in virus and immune response.
        virus_virus = (
            shift
            + C
            + RHO * free * (healthy_1_by_virus + healthy_2_by_virus)
            - self.production * by_virus
        )
        virus_immune = self.production * by_immune * total
        immune_virus = -response * by_virus
        immune_immune = shift - growth + response * by_immune * total
        determinant = virus_virus * immune_immune - virus_immune * immune_virus

        def solve(right: Concentrations) -> Concentrations:
            healthy_1, healthy_2 = right.healthy_1 / (free + a_v), right.healthy_2 / (free + b_v)
            infected_1 = (right.infected_1 + a_v * healthy_1) / death
            infected_2 = (right.infected_2 + b_v * healthy_2) / death
            infected = infected_1 + infected_2
            left_virus = (
                right.virus + self.production * infected - RHO * (a_v * healthy_1 + b_v * healthy_2)
            )
            left_immune = right.immune + response * infected
            virus = (left_virus * immune_immune - virus_immune * left_immune) / determinant
            immune = (virus_virus * left_immune - immune_virus * left_virus) / determinant
            cleared = by_immune * immune
            return Concentrations(
                healthy_1=healthy_1 - healthy_1_by_virus * virus,
                healthy_2=healthy_2 - healthy_2_by_virus * virus,
                infected_1=infected_1 + infected_1_by_virus * virus - now.infected_1 * cleared,
                infected_2=infected_2 + infected_2_by_virus * virus - now.infected_2 * cleared,
                virus=virus,
                immune=immune,
            )

        return solve


def _observe(now: Concentrations) -> Array:
    return jnp.log10(jnp.stack(now))
