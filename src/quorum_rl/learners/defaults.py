"""What the method's paper leaves open about its learners, chosen here once, each with its reason.

The paper fixes a grid of learning rates and the nets ((256, 256), and (512,) for HIV): ours are
smaller. It says nothing of the rest, so the choices are those of the code that discrete BCQ and
discrete CQL were published or are mostly run with: sfujim/BCQ and d3rlpy.
"""

HIDDEN_SIZES = (64, 64)  # with noise, at ε = 5, better than the paper's (docs/reproduction.md)

DISCOUNT = 0.99  # sfujim/BCQ and d3rlpy agree

# A slow average at every step, as sfujim/BCQ does on small control tasks, instead of a copy every
# 8000 steps (its setting for Atari, d3rlpy's default): private training may end after 2000 steps,
# and a copy that never comes would leave the bootstrap at its random start.
TARGET_INTERVAL = 1
TARGET_RATE = 0.005

HUBER_THRESHOLD = 1.0  # both: beyond it the gradient of the temporal difference stops growing

CQL_ALPHA = 1.0  # d3rlpy's default for discrete actions

BCQ_THRESHOLD = 0.3  # Fujimoto et al. 2019, and both codes
BCQ_LOGIT_PENALTY = 0.01  # sfujim/BCQ (d3rlpy: 0.5, and on normalised logits)

# Fujimoto and Gu 2021, and d3rlpy. Actions lie between -1 and 1.
TD3_ALPHA = 2.5
TD3_NOISE = 0.2
TD3_NOISE_CLIP = 0.5

# d3rlpy's defaults; Kostrikov et al. 2022 use them on locomotion.
IQL_EXPECTILE = 0.7
IQL_TEMPERATURE = 3.0
IQL_MOST_WEIGHT = 100.0

# Both codes use Adam, and the paper's grid of learning rates (1e-4 to 1e-2) is one for Adam.
OPTIMISER = "adam"
