"""Pages and pictures for people: the outermost room, which no other imports but the commands."""

from typing import TYPE_CHECKING

from quorum_rl.lazy import load_when_used

if TYPE_CHECKING:
    from quorum_rl.report.diagnostics import agreement_facts as agreement_facts
    from quorum_rl.report.facts import Agreement as Agreement
    from quorum_rl.report.gathering import gather as gather
    from quorum_rl.report.json_facts import (
        as_object as as_object,
        items as items,
        number as number,
        read_object as read_object,
        reading as reading,
        whole as whole,
    )
    from quorum_rl.report.pictures import (
        draw_agreement as draw_agreement,
        draw_returns as draw_returns,
    )
    from quorum_rl.report.write import report_name as report_name, write_report as write_report
else:
    __all__, __getattr__ = load_when_used(
        __name__,
        {
            "diagnostics": "agreement_facts",
            "facts": "Agreement",
            "gathering": "gather",
            "pictures": "draw_agreement draw_returns",
            "json_facts": "as_object items number read_object reading whole",
            "write": "report_name write_report",
        },
    )
