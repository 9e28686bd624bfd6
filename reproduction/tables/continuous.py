"""What experts with continuous actions teach."""

import numpy as np

from quorum_rl.envs import get_world
from reproduction.results import study
from reproduction.tables.few import summary
from reproduction.tables.formatting import hundredths, mean, table


def earned() -> str:
    """Each way's return and fraction of the experts' mean, a column for each population."""
    results = study("continuous")
    rows: dict[tuple[str, str], list[str]] = {}
    for facts in results.values():
        random = get_world(facts["world"]).facts.random_return
        for row in facts["rows"]:
            at = "" if row["epsilon"] is None else f", ε = {row['epsilon']:g}"
            cells = rows.setdefault((row["method"] + at, row["learns"]), [])
            if row["returns"] is None:
                cells.append("noise")
                continue
            part = (np.mean(row["returns"]) - random) / (facts["experts_mean"] - random)
            half = np.ptp(summary(np.array(row["returns"]))) / 2
            cells.append(f"{mean(row['returns'])} ± {half:.0f} ({hundredths(part)})")
    head = [f"{name}, experts {mean([facts['experts_mean']])}" for name, facts in results.items()]
    return table(["", "learner", *head], [[*way, *cells] for way, cells in rows.items()], words=2)
