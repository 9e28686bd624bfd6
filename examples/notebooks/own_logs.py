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
# # Your own logs
#
# From a table of what people decided to a policy that answers by name. Nobody has to be asked, and
# no simulator is needed. It takes less than a minute on two cores.
#
# ## The table
# 150 nurses decide at the door: wait, see a doctor, or go to the emergency room. A row is a
# decision. Replace this cell by your own table, in Parquet or CSV.

# %%
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

rng = np.random.default_rng()
nurses, shifts, arrivals = 150, 6, 12  # every shift has twelve arrivals
rows = nurses * shifts * arrivals
nurse = np.repeat(np.arange(nurses), shifts * arrivals)
fever = rng.normal(37.8, 1.0, rows)
pulse = rng.normal(90, 18, rows)
strict = rng.normal(0, 0.3, nurses)[nurse]  # every nurse has thresholds of her own
urgency = (fever - 37.8) + (pulse - 90) / 18 + strict
decision = np.array(["wait", "doctor", "emergency"])[np.digitize(urgency, [0.3, 1.8])]
right = np.array(["wait", "doctor", "emergency"])[np.digitize(urgency - strict, [0.3, 1.8])]
step = np.tile(np.arange(arrivals), nurses * shifts)
table = {
    "nurse": np.char.mod("N%03d", nurse),
    "shift": np.repeat(np.arange(nurses * shifts), arrivals),
    "arrival": step,
    "fever": np.where(rng.random(rows) < 0.05, np.nan, fever),  # 5% nobody measured
    "pulse": pulse,
    "decision": decision,
    "right": (decision == right) * 1.0,
    "left": np.zeros(rows, bool),  # no shift ends early
}
arrays = {name: pa.array(column, from_pandas=True) for name, column in table.items()}
pq.write_table(pa.table(arrays), "door.parquet")

# %% [markdown]
# ## Say what is public
# Labels, ranges, what stands for a missing value and how many nurses there are at least are
# *declared*: take them from a textbook, never from the rows. They are published with the policy.

# %%
from quorum_rl import Budget, Demonstrations, fit
from quorum_rl.dictionary import Column, Dictionary
from quorum_rl.logs import Declared, save_demonstrations

columns = (
    Column("fever", "°C", fill=37, low=34, high=42),
    Column("pulse", "1/min", fill=80, low=30, high=200),
)
names = Dictionary(columns, action_labels=("wait", "doctor", "emergency"))
declared = Declared(3, 2, horizon=arrivals, minimum_experts=140, dictionary=names)
called = {
    "expert": "nurse",
    "episode": "shift",
    "step": "arrival",
    "observation": ["fever", "pulse"],
    "action": "decision",
    "reward": "right",
    "terminated": "left",
}
log = Demonstrations.open("door.parquet", declared, called)
save_demonstrations(log, "door.arrow")  # once: a table that is imported again is another log
log

# %% [markdown]
# ## Learn, and let some of them judge
# A quarter of the nurses is not learned from. They say, privately and at no further ε, how often
# the policy decides as they did. Each nurse is in one part or the other by a secret coin.

# %%
log = Demonstrations.open("door.arrow")
budget = Budget.create("nurses.ledger", epsilon=3, delta=1e-4)
made = fit(
    log,
    epsilon=3,
    delta=1e-4,
    budget=budget,
    judges=0.25,
    return_bounds=(0, arrivals),
    folder="runs/door",
    accepted=["one-expert-each", "own-names"],
    accepted_by="A. Weber, data protection",
)
print(made.certificate.statement)

# %% [markdown]
# `made.judging` has the answers with 95% intervals. With few judges it says that it cannot tell.

# %%
made.judging

# %% [markdown]
# ## Ask it by name
# Gaps and ranges are handled as in training, and the answer is a label.

# %%
print(made.policy.act({"fever": 40.5, "pulse": 135}))
print(made.policy.act({"fever": None, "pulse": 70}))

# %% [markdown]
# ## Publish
# The bundle is what may leave. Its report answers in plain words, and it names no nurse.

# %%
from quorum_rl.report import publish

publish("runs/door", "door-policy", ledger="nurses.ledger").files
