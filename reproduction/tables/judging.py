"""The table of judged values in judging.md."""

from reproduction.results import study
from reproduction.tables.formatting import table


def values() -> str:
    """How often intervals of values hold, and what they are worth."""
    rows = study("judged_values").values()
    head = ["world, policy", "does the same", "experts", "ε", "value: holds", "width", "tells"]
    head += ["gain: holds", "yes or no", "naive: holds"]
    shown = [
        [
            f"{row['world']}, {row['policy']}",
            f"{row['agreement']:.0%}",
            str(row["experts"]),
            f"{row['epsilon']:g}",
            f"{row['value_holds']:.1%}",
            f"{row['half_width']:.2f}".lstrip("0"),
            f"{row['tells']:.0%}",
            f"{row['gain_holds']:.1%}",
            f"{row['yes'] + row['no']:.1%}",
            f"{row['naive_holds']:.0%}",
        ]
        for row in sorted(rows, key=lambda row: (row["world"], row["policy"], row["experts"]))
        if row["policy"] != "cql" and row["experts"] != 150
    ]
    return table(head, shown, words=1)
