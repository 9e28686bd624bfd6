"""The evaluation: what measures returns, its results, and the tables made of them.

The results page took 28 minutes of one H200, everything at once. Start NVIDIA's MPS before
(`nvidia-cuda-mps-control -d`), or processes take turns. Every command can be given again: it goes
on where it stopped, with the same experts and the same commit. Give `--commit` where there is no
git, and `--list` to see what would be run.

    P="python -m reproduction.studies.populations"
    $P LunarLander --experts 1000 --at-once 5 --out pops/lander.parquet &
    $P CartPole Acrobot --experts 3000 --at-once 9 --out pops/small.parquet &
    $P HIV --experts 1000 --at-once 4 --out pops/hiv.parquet &

Populations come first and fill the GPU: 10 minutes for three of LunarLander, three of HIV and six
of the others together. After that it waits for the host, which compiles: more cores help. What is
left (docs/results.md) goes on from experts that are trained again, so a world is run as a whole.
"""
