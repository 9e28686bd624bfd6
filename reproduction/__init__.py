"""The evaluation: what measures returns, its results, and the tables made of them.

The results page in half an hour of one H200, at most ten minutes a command. Start NVIDIA's MPS
before (`nvidia-cuda-mps-control -d`), or processes take turns. Every command can be given again: it
goes on where it stopped, with the same experts and the same commit. Give `--commit` where there is
no git, and `--list` to see what would be run.

    # 1, 120 s: experts act as the plain loop lets them, on a GPU too; 3000 of LunarLander are to
    # take at most 15 s.
    python -m pytest tests/logs/test_collect.py -k plain_loop
    python benchmarks/demonstrations.py --collect LunarLander --experts 3000 --time-limit 100
    python benchmarks/demonstrations.py --collect LunarLander --experts 3000 --plain 0

    # 2, 420 s: LunarLander, 1000 experts. 300 s for three populations, then 9 cells of 20 s.
    python -m reproduction.studies.populations LunarLander --experts 1000 --parts experts ours \
        --folder /tmp/pops --out /tmp/pops/lander.parquet --until 360

    # 3, 580 s: CartPole and Acrobot, 3000 experts. 100 s for eight populations, 120 s for the
    # default, 200 s for tuning, the rest for the bounds, DP-SGD and the paper's step.
    python -m reproduction.studies.populations CartPole Acrobot --at-once 24 \
        --folder /tmp/pops --out /tmp/pops/populations.parquet --until 520

    # 4, 580 s: HIV, 1000 experts, 100 s for its populations; then what 3 left.
    python -m reproduction.studies.populations HIV --experts 1000 --methods non-private \
        --folder /tmp/pops --out /tmp/pops/hiv.parquet --until 240
    python -m reproduction.studies.populations CartPole Acrobot --at-once 24 \
        --folder /tmp/pops --out /tmp/pops/populations.parquet --until 280

These seconds are estimates. Known are: 11.5 million environment steps a second for experts of
LunarLander and 57 million for HIV (docs/population.md); 15 to 40 s for a number of experts with the
default, at six ε and eight seeds, and 12 to 34 s for DP-SGD at one ε, with several processes at
once (`seconds` in results/few.parquet). Three populations of 3000 LunarLander experts alone would
take 18 minutes.
"""
