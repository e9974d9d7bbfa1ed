"""What a model knows of its errors as arrays and a JSON dictionary, and back, to the bit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from everlearn.online.intervals import BLOCK, REGIONS, ErrorRecord
from everlearn.support.archive import check_arrays, part_of
from everlearn.support.errors import InvalidInputError, given
from everlearn.world_model.vectors import aligned_zeros

if TYPE_CHECKING:
    from everlearn.online.model import OnlineWorldModel

Arrays = dict[str, npt.NDArray[Any]]

PREFIX = "intervals/"
"""Of the names of arrays in a model's state."""

BLOCK_PARTS = ("obs", "action", "next_obs", "memory", "unknown")
"""What is kept of the transitions of a block."""


def record_state(record: ErrorRecord, *, learning: bool = True) -> tuple[Arrays, dict[str, Any]]:
    """Everything, for `restore_record`; without `learning` what bounds need, and no block."""
    # Most bins of histograms are empty, and so are cells where nothing was active.
    counts = record.counts[: len(record.centres)].reshape(-1)
    seen, places = np.flatnonzero(record.visits), np.flatnonzero(counts)
    arrays: Arrays = {
        "seen": seen.astype(np.int32),
        "squares": record.squares[seen],
        "visits": record.visits[seen],
        "usual": record.usual.copy(),
        "centres": record.centres.copy(),
        "places": places.astype(np.int32),
        "counts": counts[places],
        "everywhere": record.everywhere.copy(),
    }
    meta: dict[str, Any] = {
        "scored": record.scored,
        "usual_count": record.usual_count,
        "reach": record.reach,
        "block": len(record.block_unknown),
    }
    if not learning:  # shares of counts need few digits, and exported files are to be small
        arrays |= {name: arrays[name].astype(np.float16) for name in ("counts", "everywhere")}
        arrays["visits"] = arrays["visits"].astype(np.float32)
    if learning:
        kept = zip(BLOCK_PARTS, (*record.block, record.block_unknown), strict=True)
        arrays |= {name: part[: record.filled].copy() for name, part in kept}
        if record.filled and record.weights is not None:
            rows = np.flatnonzero(record.weights.any(axis=1))
            arrays |= {"rows": rows, "weights": record.weights[rows]}
    return {PREFIX + name: array for name, array in arrays.items()}, meta


def check_record(record: ErrorRecord, arrays: Arrays, meta: Any, model: OnlineWorldModel) -> None:
    """Refuse a state that does not fit: the compiled kernels trust every index."""
    found = part_of(arrays, PREFIX)
    if not isinstance(meta, dict):
        raise InvalidInputError(f"'intervals' of a state are {given(meta)}; not usable")
    regions, counted, seen = (
        len(np.atleast_1d(found.get(name, ()))) for name in ("centres", "places", "seen")
    )
    expected: dict[str, tuple[str, tuple[int, ...]]] = {
        "seen": ("i", (seen,)),
        "squares": ("f", (seen, record.outputs)),
        "visits": ("f", (seen,)),
        "usual": ("f", record.usual.shape),
        "centres": ("f", (regions, record.read)),
        "places": ("i", (counted,)),
        "counts": ("f", (counted,)),
        "everywhere": ("f", record.everywhere.shape),
    }
    filled = len(np.atleast_1d(found.get("obs", ())))
    if "obs" in found:
        widths: list[tuple[int, ...]] = [*((size,) for size in record.sizes), ()]
        expected |= {
            name: ("f", (filled, *width)) for name, width in zip(BLOCK_PARTS, widths, strict=True)
        }
    table = model.learner.table
    if "rows" in found:
        rows = len(np.atleast_1d(found["rows"]))
        expected |= {"rows": ("i", (rows,)), "weights": ("f", (rows, table.shape[1]))}
    check_arrays(found, expected)
    if "rows" in found and not ((found["rows"] >= 0).all() and (found["rows"] < len(table)).all()):
        raise InvalidInputError("'intervals/rows' of a state are no cells of the encoding")
    for name, count in (
        ("places", regions * record.everywhere.size),
        ("seen", len(record.visits)),
    ):
        numbered = found[name]
        if (np.diff(numbered) <= 0).any() or (numbered < 0).any() or (numbered >= count).any():
            raise InvalidInputError(f"'intervals/{name}' of a state are not what the model has")
    whole: dict[str, Any] = {name: meta.get(name) for name in ("scored", "block")}
    numbers: dict[str, Any] = {name: meta.get(name) for name in ("usual_count", "reach")}
    if (
        any(type(value) is not int or value < 0 for value in whole.values())
        or any(type(value) not in (int, float) or value < 0 for value in numbers.values())
        or not max(filled, 1) <= whole["block"] <= BLOCK
        or (filled and filled == whole["block"])
        or bool(filled) != ("rows" in found)
        or not regions <= REGIONS
        or bool(regions) > bool(whole["scored"])
        or not all(
            np.isfinite(part).all() and (part >= 0).all()
            for part in (
                found[name] for name in ("squares", "visits", "usual", "counts", "everywhere")
            )
        )
    ):
        raise InvalidInputError(
            f"'intervals' of a state say {whole | numbers}, with {regions} regions and "
            f"{filled} transitions of a block; not usable"
        )


def restore_record(
    record: ErrorRecord, arrays: Arrays, meta: dict[str, Any], model: OnlineWorldModel
) -> None:
    """Take over what `record_state` returned, after `check_record`."""
    found = {name: array.copy() for name, array in part_of(arrays, PREFIX).items()}
    record.squares[found["seen"]], record.visits[found["seen"]] = found["squares"], found["visits"]
    record.usual = found["usual"].astype(np.float64)
    record.everywhere = found["everywhere"].astype(np.float32)
    record.centres = found["centres"].astype(np.float64)
    record.counts = np.zeros((REGIONS, *record.everywhere.shape), np.float32)
    record.counts.reshape(-1)[found["places"]] = found["counts"]
    record.scored, record.reach = meta["scored"], float(meta["reach"])
    record.usual_count = float(meta["usual_count"])
    record.start_block(meta["block"])
    if "rows" in found:
        record.filled = len(found["obs"])
        for part, name in zip((*record.block, record.block_unknown), BLOCK_PARTS, strict=True):
            part[: record.filled] = found[name]
        table = model.learner.table
        record.weights = aligned_zeros(table.shape, table.dtype)
        record.weights[found["rows"]] = found["weights"]
