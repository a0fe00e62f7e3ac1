# Shards into one dataset, the device's peak, the best cells and the models. Seconds to a
# minute of one core each: as local rules, since on a cluster not worth a job's start, let alone a GPU.


use rule stage as aggregate with:
    input:
        # A recorded data set lies here, wherever the results go.
        shards=local(flow.shard_files) if flow.config.dataset else flow.shard_files,
    output:
        directory(flow.dataset),
    params:
        call="gpushmoo.analysis.aggregate:aggregate_run",
        # Recorded ones may be of several: their names keep them apart.
        one_model=flow.config.dataset is None,
        # The shards of a recorded data set tell their own.
        plan=None if flow.config.dataset else flow.plan.as_plain(),


use rule stage as peak with:
    input:
        dataset=flow.dataset,
    output:
        flow.path("summary", "peak.json"),
    params:
        call="gpushmoo.analysis.peak:measure_peak",
        kinds=flow.peak_kernels,


use rule stage as best with:
    input:
        dataset=flow.dataset,
        peak=flow.path("summary", "peak.json"),
    output:
        flow.path("summary", "best.parquet"),
    params:
        call="gpushmoo.analysis.best:write_best",
        host_fed=flow.host_fed_kernels,
        limits=flow.limits,


# Only in runs that sweep `chase`.
use rule stage as machine with:
    input:
        dataset=flow.dataset,
    output:
        flow.path("model", "machine.json"),
    params:
        call="gpushmoo.model.machine:measure_machine",


use rule stage as device_model with:
    input:
        dataset=flow.dataset,
        code=flow.recorded_beside("code_paths.json"),
    output:
        fits=flow.path("model", "device.json"),
        table=flow.path("model", "device.parquet"),
    params:
        call="gpushmoo.model.stage:fit_devices",
        folders=flow.kernel_places,
        # The model asks kernels' Python what threads access.
        digests={
            name: code_digest(ROOT / folder / "workload.py")
            for name, folder in flow.kernel_places.items()
        },
