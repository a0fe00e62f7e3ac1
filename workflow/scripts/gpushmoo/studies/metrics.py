"""The hardware counters that are read, by the columns that hold them."""

from __future__ import annotations

from collections.abc import Mapping

# Names of Nsight Compute for compute capability 9.0; sums are over the whole device. A sector is of
# 32 bytes, a cache line of four. L1 is the cache of a multiprocessor, through which textures and
# surfaces go as well; L2 the device's. The units are in the columns' names: without one, what is
# counted is.
_MEMORY = {
    "duration_ns": "gpu__time_duration.sum",
    "dram_read_bytes": "dram__bytes_read.sum",
    "dram_write_bytes": "dram__bytes_write.sum",
    "l2_read_sectors": "lts__t_sectors_srcunit_tex_op_read.sum",
    "l2_write_sectors": "lts__t_sectors_srcunit_tex_op_write.sum",
    "l2_read_hit_sectors": "lts__t_sectors_srcunit_tex_op_read_lookup_hit.sum",
    "l2_write_hit_sectors": "lts__t_sectors_srcunit_tex_op_write_lookup_hit.sum",
    "l2_requests": "lts__t_requests_srcunit_tex.sum",
    "l2_sectors": "lts__t_sectors.sum",
    "l2_hit_percent": "lts__t_sector_hit_rate.pct",
    "l2_to_l1_bytes": "l1tex__m_xbar2l1tex_read_bytes.sum",
    "l1_to_l2_bytes": "l1tex__m_l1tex2xbar_write_bytes.sum",
}
_LOCAL = {
    "l1_hit_percent": "l1tex__t_sector_hit_rate.pct",
    "global_load_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "global_load_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "global_load_hit_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld_lookup_hit.sum",
    "global_store_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "global_store_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "texture_requests": "l1tex__t_requests_pipe_tex_mem_texture.sum",
    "texture_sectors": "l1tex__t_sectors_pipe_tex_mem_texture.sum",
    "texture_hit_sectors": "l1tex__t_sectors_pipe_tex_mem_texture_lookup_hit.sum",
    "surface_store_requests": "l1tex__t_requests_pipe_tex_mem_surface_op_st.sum",
    "surface_store_sectors": "l1tex__t_sectors_pipe_tex_mem_surface_op_st.sum",
    "instructions": "smsp__inst_executed.sum",
    "sm_active_cycles": "sm__cycles_active.avg",
    "sm_elapsed_cycles": "sm__cycles_elapsed.max",
    "active_warps": "sm__warps_active.avg.per_cycle_active",
    "warps_launched": "sm__warps_launched.sum",
    "blocks_launched": "sm__ctas_launched.sum",
    **{
        f"{column}_percent": f"{unit}__throughput.avg.pct_of_peak_sustained_elapsed"
        for column, unit in (("sm", "sm"), ("l1", "l1tex"), ("l2", "lts"), ("dram", "dram"))
    },
}
# Warps that wait for this, in the mean of the cycles in which one issues.
_STALLS = (
    *("long_scoreboard", "short_scoreboard", "lg_throttle", "tex_throttle", "mio_throttle"),
    *("drain", "membar", "wait", "no_instruction", "barrier", "dispatch_stall", "not_selected"),
    *("math_pipe_throttle", "imc_miss", "branch_resolving", "sleeping"),
)
_WAITING = {
    f"stall_{reason}": f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio"
    for reason in _STALLS
}

# Read together, each group in a run of its own: the more there are in one, the more often every
# launch is repeated, and between two of its passes the output is restored through the caches.
GROUPS: Mapping[str, Mapping[str, str]] = {"memory": _MEMORY, "units": {**_LOCAL, **_WAITING}}
COLUMNS = tuple(column for group in GROUPS.values() for column in group)
