# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Quickstart: learn from 100 pilots
#
# One policy from what many experts did, so that nobody can tell whether any one of them took part.
# It takes less than a minute on two cores and needs `pip install 'quorum-rl[report,onnx]'`.
#
# ## Who is protected
# 100 pilots balance the pole of CartPole. Each has a way of steering of its own, and errs now and
# then. Here they are Python functions; with real logs you have no experts to ask, and need none.

# %%
import numpy as np

from quorum_rl.envs import get_world
from quorum_rl.experts import CallableExperts
from quorum_rl.logs import collect

rng = np.random.default_rng()


def pilot(lean: float, spin: float, slips: float):
    def probabilities(seen):  # (states, 4): position, speed, angle, spin of the pole
        right = seen @ np.array([0.05, 0.1, lean, spin]) > 0
        chance = np.where(right, 1 - slips, slips)
        return np.stack([1 - chance, chance], axis=1)

    return probabilities


pilots = [
    pilot(rng.normal(1, 0.3), rng.normal(0.3, 0.1), rng.uniform(0.02, 0.2)) for _ in range(100)
]
experts = CallableExperts(pilots, observation_size=4, action_count=2, row_by_row=False)

# %% [markdown]
# ## What they did
# Ten episodes of each. How many experts there are is private, so you *declare* how many there are
# at least. The log shows nothing but what was declared.

# %%
world = get_world("CartPole")
log, _ = collect(experts, world, trajectories=10, minimum_experts=90)
log

# %% [markdown]
# ## One budget, for good
# All that is ever learned from these pilots is paid from one ledger. ε says how much one pilot can
# change what comes out: at ε = 1 the best guess about one of them is right at most 74% of the time.

# %%
from quorum_rl import Budget, fit

budget = Budget.create("pilots.ledger", epsilon=2, delta=1e-4)
made = fit(
    log,
    epsilon=1,
    delta=1e-4,
    budget=budget,
    folder="runs/pilots",
    accepted=["one-expert-each"],  # your word: nobody owns two pilots
)
made

# %% [markdown]
# It printed its plan before it spent anything. Every pilot learned from its own log, and the sum of
# where they went got noise. A plan that would be mostly noise is refused, and costs nothing.
#
# ## What it cost, and what is left
# The certificate is computed from the ledger. Anyone can compute it again.

# %%
print(made.certificate.statement)
print("left:", round(budget.left(), 3))

# %% [markdown]
# ## How good is it?
# Playing the policy costs nothing more: it may be asked as often as you like. An episode ends when
# the pole falls, at the latest after 1000 steps. Random steering earns 22.

# %%
import jax

from quorum_rl.evaluation import policy_returns

returns = policy_returns(made.policy, world, jax.random.key(0), episodes=50)
print("the policy earns", returns.mean())
made.policy.act([0.0, 0.0, 0.2, 0.5])  # the pole falls to the right: 1 pushes right

# %% [markdown]
# ## What may leave the building
# A folder with the policy, its certificate, the ledger and a model card. The logs stay.

# %%
from quorum_rl.report import publish

publish("runs/pilots", "pilots-policy", ledger="pilots.ledger", hub_card=True).files

# %% [markdown]
# Next: [your own logs](own_logs.py).
