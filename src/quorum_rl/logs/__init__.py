"""The logs: what the experts did."""

from typing import TYPE_CHECKING

from quorum_rl.lazy import load_when_used

if TYPE_CHECKING:
    from quorum_rl.logs.agreement import (
        QUANTILES as QUANTILES,
        AgreementCurve as AgreementCurve,
        agreement_curve as agreement_curve,
    )
    from quorum_rl.logs.assemble import from_episodes as from_episodes, from_padded as from_padded
    from quorum_rl.logs.collection import (
        as_they_acted as as_they_acted,
        collect as collect,
        collect_from_gymnasium as collect_from_gymnasium,
        smoothing_of as smoothing_of,
    )
    from quorum_rl.logs.columns import (
        TableColumns as TableColumns,
        columns_named as columns_named,
        observed_columns as observed_columns,
        range_in as range_in,
        read_columns as read_columns,
        with_facts as with_facts,
        worth_keeping as worth_keeping,
    )
    from quorum_rl.logs.declared import (
        Declared as Declared,
        declared_from_json as declared_from_json,
        declared_to_json as declared_to_json,
    )
    from quorum_rl.logs.demonstrations import (
        Columns as Columns,
        Demonstrations as Demonstrations,
        Episodes as Episodes,
        ReleaseSplit as ReleaseSplit,
        split_release_pool as split_release_pool,
    )
    from quorum_rl.logs.digest import salted_digest as salted_digest
    from quorum_rl.logs.minari import (
        minari_columns as minari_columns,
        read_minari as read_minari,
        write_minari as write_minari,
    )
    from quorum_rl.logs.native import (
        open_demonstrations as open_demonstrations,
        save_demonstrations as save_demonstrations,
    )
    from quorum_rl.logs.parquet import read_parquet as read_parquet
    from quorum_rl.logs.rows import (
        StepArrays as StepArrays,
        from_step_arrays as from_step_arrays,
        to_step_arrays as to_step_arrays,
        with_history as with_history,
    )
    from quorum_rl.logs.schema import schema_of as schema_of
    from quorum_rl.logs.sketch import sketch_columns as sketch_columns
    from quorum_rl.logs.tables import read_table as read_table, write_table as write_table
else:
    __all__, __getattr__ = load_when_used(__name__)
