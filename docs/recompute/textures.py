"""The second document's experiment: textures and surfaces over block shapes."""

from __future__ import annotations

from typing import Any

import pandas as pd
from gpushmoo.analysis.ceiling import share_of_ceiling
from texture_shmoo.analysis import ENOUGH_THREADS, WARP, written_sums

from .record import Record
from .words import (
    Claims,
    gbs,
    joined,
    percent,
    rate,
    shape,
    signed,
    span,
    whole_percent,
    whole_percent_span,
)

TEXTURE, SURFACE = "tex2d_sum", "surf2d_memset"
OBVIOUS = {TEXTURE: "block-point-clamp", SURFACE: "block-one"}
ROW = {TEXTURE: "row-point-clamp", SURFACE: "row-one"}
WORDS = {TEXTURE: ("texture read", "load"), SURFACE: ("surface memset", "store")}
NAMED = 4


def values(record: Record, claims: Claims) -> dict[str, Any]:
    """Table and sentences on the shapes, on stored sums, given values, filters and mappings."""
    compared = record.benchmark("textures")
    return {
        "table": [_row(record, kernel, size) for kernel in OBVIOUS for size in (4096, 16384)],
        **_rule(record, claims),
        **_cpp(compared, claims),
        **_lone(record, compared, claims),
        "written": _written(record),
        **_given(record, claims),
        **_modes(record),
        **_mappings(record),
        **_wide(record, claims),
    }


def _row(record: Record, kernel: str, size: int) -> list[str]:
    where = {"dtype": "float", "variant": OBVIOUS[kernel], "width": size, "cache_state": "warm"}
    cells, tied = record.of(kernel, **where), record.tied(kernel, **where)
    top = tied.iloc[0]
    threads = tied["threads_per_block"]
    names = (
        joined(shape(row) for _, row in tied.iterrows())
        if len(tied) <= NAMED
        else f"{len(tied)} shapes of {threads.min()} to {threads.max()} threads"
    )
    share = share_of_ceiling(record.ceiling, top)
    slow = cells.loc[cells["bandwidth_gbs"].idxmin()]
    what, kind = WORDS[kernel]
    return [
        f"{what}, {size}²",
        rate(top),
        f"{100 * (share or 0):.0f} % of {kind}",
        names,
        f"{shape(slow)}, {percent(slow['bandwidth_gbs'] / top['bandwidth_gbs'])} of the best",
    ]


def _rule(record: Record, claims: Claims) -> dict[str, str]:
    """The document's rule for surfaces: at least 128 threads, and a multiple of 32."""
    parts: dict[str, list[float]] = {"small": [], "kept": [], "broken": []}
    counts = {}
    for size in (4096, 16384):
        cells = record.of(SURFACE, dtype="float", variant=OBVIOUS[SURFACE], width=size)
        speed = cells["bandwidth_gbs"] / cells["bandwidth_gbs"].max()
        enough = cells["threads_per_block"] >= ENOUGH_THREADS
        whole_warps = cells["threads_per_block"] % WARP == 0
        chosen = {
            "small": ~enough,
            "kept": enough & whole_warps,
            "broken": enough & ~whole_warps,
        }
        for name, mask in chosen.items():
            parts[name] += [float(speed[mask].min()), float(speed[mask].max())]
            counts[name] = str(int(mask.sum()))
    best = {
        kernel: [
            int(
                record.best(kernel, dtype="float", variant=OBVIOUS[kernel], width=s)[
                    "threads_per_block"
                ]
            )
            for s in (4096, 16384)
        ]
        for kernel in OBVIOUS
    }
    tied = pd.concat(
        record.tied(SURFACE, dtype="float", variant=OBVIOUS[SURFACE], width=s, cache_state="warm")
        for s in (4096, 16384)
    )["threads_per_block"]
    claims.hold(
        "Fewer than 128 threads are slower than the best shapes by half.",
        max(parts["small"]) < 0.5,
        max(parts["small"]),
    )
    claims.hold(
        "A multiple of 32 threads is not needed.", max(parts["broken"]) > 0.95, max(parts["broken"])
    )
    return {
        "best_texture_threads": joined(sorted({str(t) for t in best[TEXTURE]})),
        "best_surface_threads": f"{tied.min()} to {tied.max()}",
        "small_shapes": counts["small"],
        "small": whole_percent_span(parts["small"]),
        "kept_shapes": counts["kept"],
        "kept_slowest": whole_percent(min(parts["kept"])),
        "broken_best": whole_percent(max(parts["broken"])),
    }


def _cpp(compared: dict[str, Any], claims: Claims) -> dict[str, Any]:
    """Ours beside the plain C++ version, as experiments/gpu/compare_textures.py wrote it."""
    lines, discordant, pairs = [], [], []
    same_order = True
    for case in compared["cases"]:
        ours, theirs = case["best"]["gpushmoo"]["gbs"], case["best"]["document"]["gbs"]
        ratio = case["ratio_of_best"]
        order = case["union_of_tops"]["order"]
        discordant.append(order["discordant"])
        pairs.append(str(order["distinguishable"]))
        tops = [[e["block"] for e in case["top"][w]] for w in ("gpushmoo", "document")]
        if case["what"] == "texture":
            same_order &= tops[0] == tops[1]
        lines.append(
            [
                f"{case['what']}, {case['size']}²",
                f"{ours:.1f}",
                f"{theirs:.1f}",
                f"{ratio['value']:.4f} ({ratio['low']:.4f} to {ratio['high']:.4f})",
                str(order["distinguishable"]),
                str(order["discordant"]),
                signed(case["all_shapes"]["difference"], 2),
            ]
        )
    claims.hold(
        "No pair that a measurement can tell apart is ordered differently.",
        not any(discordant),
        discordant,
    )
    claims.hold("The ten best texture shapes are the same in the same order.", same_order)
    return {
        "cpp": lines,
        "cpp_day": compared["written_at"][:10],
        "stream_longer": _micro_span(
            c["document_in_a_stream"]["longer_s"] for c in compared["cases"] if c["size"] == 4096
        ),
    }


def _micro_span(times: Any) -> str:
    found = [1e6 * t for t in times]
    low, high = f"{min(found):.1f}", f"{max(found):.1f}"
    return f"{low} µs" if low == high else f"{low} to {high} µs"


def _lone(record: Record, compared: dict[str, Any], claims: Claims) -> dict[str, Any]:
    """What one launch takes longer in the sweep than each of ten in a graph, at 4096²."""
    longer, share, times, launches = {}, {}, {}, {}
    starts: list[float] = []
    for case in compared["cases"]:
        if case["size"] != 4096:
            continue
        kernel = TEXTURE if case["what"] == "texture" else SURFACE
        x, y = case["best"]["gpushmoo"]["block"]
        cells = record.of(kernel, dtype="float", variant=OBVIOUS[kernel], width=4096)
        cell = cells[(cells["block_x"] == x) & (cells["block_y"] == y)].iloc[0]
        moved = cell["bytes_read"] + cell["bytes_written"]
        graph = moved / case["best"]["gpushmoo"]["gbs"] * 1e-9
        name = case["what"]
        launches[name] = int(cell["launches_per_sample"])
        times[name] = f"{1e6 * cell['median_s']:.1f}"
        longer[name] = f"{1e6 * (cell['median_s'] - graph):.1f}"
        # A start S is shared by the launches of a sample: the two differ by S/few − S/many.
        shared = 1 / int(cell["launches_per_sample"]) - 1 / case["launches_per_sample"]
        if shared > 0:
            starts.append(1e6 * (cell["median_s"] - graph) / shared)
        share[name] = float(cell["median_s"] / graph - 1)
    claims.hold("Few launches a sample cost more.", all(s > 0 for s in share.values()), share)
    return {
        "lone_us": longer,
        "lone_times": times,
        "lone_launches": launches,
        "start": _start(starts),
    }


def _start(starts: list[float]) -> str:
    """What launches share, if one number explains texture and surface; else nothing is said."""
    if len(starts) < 2 or max(starts) > 1.2 * min(starts):
        return ""
    return (
        f"A start and end of {span(starts)} µs that the launches of a sample share would explain "
        "both."
    )


def _written(record: Record) -> dict[str, str]:
    """What storing the sums costs a float texture at 4096², over all shapes."""
    found = next(
        w
        for w in written_sums(record.of(TEXTURE), TEXTURE, "-written")
        if w.row["dtype"] == "float" and w.row["width"] == 4096
    )
    return {
        "median": whole_percent(found.median - 1),
        "low": whole_percent(found.low - 1),
        "high": whole_percent(found.high - 1),
    }


def _given(record: Record, claims: Claims) -> dict[str, Any]:
    """A value computed from the place against one given as an argument, surfaces, 16384²."""
    where = {"dtype": "float", "width": 16384}
    place, one = (record.of(SURFACE, variant=v, **where) for v in ("block-place", "block-one"))
    both = place.merge(one, on=["block_x", "block_y"], suffixes=("_place", "_one"))
    ratio = both["bandwidth_gbs_place"] / both["bandwidth_gbs_one"] - 1
    best = [float(c["bandwidth_gbs"].max()) for c in (place, one)]
    claims.hold("A computed value is written faster, best against best.", best[0] > best[1], best)
    return {
        "place": gbs(best[0]),
        "given": gbs(best[1]),
        "place_pairs": f"{signed(ratio.min())} to {signed(ratio.max())}, "
        f"median {signed(ratio.median())}",
    }


def _modes(record: Record) -> dict[str, Any]:
    """Filters and address modes at 2048², best shape against best shape."""
    cells = record.of(TEXTURE, width=2048)
    best = cells.groupby(["dtype", "variant"], observed=True)["bandwidth_gbs"].max()
    types = sorted(set(cells["dtype"]))
    address = {
        (d, m): 1 - best[d, f"block-point-{m}"] / best[d, "block-point-clamp"]
        for d in types
        for m in ("wrap", "mirror")
    }
    linear = {d: 1 - best[d, "block-linear-clamp"] / best[d, "block-point-clamp"] for d in types}
    wide = [best["float4", f"block-{f}-clamp"] for f in ("point", "linear")]
    paired = _paired_modes(cells)
    return {
        "address": percent(max(address.values())),
        "address_paired": percent(paired),
        "linear": [[d, f"{100 * linear[d]:.1f} %"] for d in types],
        "linear_float4": f"{gbs(wide[0])} to {gbs(wide[1])}",
        "bytes": gbs(float(best["unorm8", "block-point-clamp"])),
    }


def _paired_modes(cells: pd.DataFrame) -> float:
    """The most that wrap or mirror cost any one shape."""
    index = ["dtype", "block_x", "block_y"]
    plain = cells[cells["variant"] == "block-point-clamp"].set_index(index)["bandwidth_gbs"]
    worst = 0.0
    for mode in ("wrap", "mirror"):
        other = cells[cells["variant"] == f"block-point-{mode}"].set_index(index)["bandwidth_gbs"]
        worst = max(worst, float((1 - other / plain).max()))
    return worst


def _mappings(record: Record) -> dict[str, Any]:
    """What the row mapping costs, best shape against best shape; flat blocks of 512 threads."""
    lines = []
    for kernel in OBVIOUS:
        for size in (4096, 16384):
            cells = record.of(kernel, width=size)
            for dtype in sorted(set(cells["dtype"])):
                best = cells[cells["dtype"] == dtype].groupby("variant")["bandwidth_gbs"].max()
                obvious, row = float(best[OBVIOUS[kernel]]), float(best[ROW[kernel]])
                lines.append(
                    [
                        WORDS[kernel][0],
                        f"{size}²",
                        dtype,
                        gbs(obvious),
                        gbs(row),
                        f"{100 * (1 - row / obvious):.0f} %",
                    ]
                )
    flat = record.of(SURFACE, width=8192, variant=OBVIOUS[SURFACE], threads_per_block=512)
    speed = {shape(c): gbs(c["bandwidth_gbs"]) for _, c in flat.iterrows()}
    return {
        "rows": lines,
        "flat": joined(f"{s} {speed[s]}" for s in ("512 × 1", "256 × 2", "128 × 4")),
    }


def _wide(record: Record, claims: Claims) -> dict[str, Any]:
    """float4 images at 4096²: the narrow best shape, and 64 × 5 beside it."""
    found: dict[str, Any] = {}
    for kernel, name in ((TEXTURE, "texture"), (SURFACE, "surface")):
        cells = record.of(kernel, dtype="float4", variant=OBVIOUS[kernel], width=4096)
        top = cells.loc[cells["bandwidth_gbs"].idxmax()]
        flat = cells[(cells["block_x"] == 64) & (cells["block_y"] == 5)].iloc[0]
        share = share_of_ceiling(record.ceiling, top)
        tied = record.tied(kernel, dtype="float4", variant=OBVIOUS[kernel], width=4096)
        found[name] = {
            "shape": shape(top),
            "gbs": gbs(top["bandwidth_gbs"]),
            "share": whole_percent(share or 0),
            "flat": whole_percent(flat["bandwidth_gbs"] / top["bandwidth_gbs"]),
            "tied": str(len(tied)),
            "of_one_device": str(tied["device_uuid"].value_counts().iloc[0]),
            "devices": str(cells["device_uuid"].nunique()),
        }
        claims.hold(
            f"The best float4 shapes of a {name} are narrow.", top["block_x"] <= 8, shape(top)
        )
    return {"wide": found}
