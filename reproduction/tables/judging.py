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


def continuous_values() -> str:
    """The same of continuous actions."""
    rows = study("judged_continuous").values()
    head = ["world, policy", "near", "experts", "ε", "earns", "experts earn", "error"]
    head += ["value: holds", "gain: holds", "no"]
    shown = [
        [
            f"{row['world']}, {row['policy']}",
            f"{row['agreement']:.0%}",
            str(row["experts"]),
            f"{row['epsilon']:g}",
            f"{row['truth']:.0f}",
            f"{row['today']:.0f}",
            f"{row['error']:+.2f}" if "error" in row else "–",
            f"{row['value_holds']:.1%}",
            f"{row['gain_holds']:.1%}",
            f"{row['no']:.1%}",
        ]
        for row in sorted(rows, key=lambda row: (row["world"], row["policy"], row["experts"]))
    ]
    return table(head, shown, words=1)
