# Rule measure: has one shard measured, by the run's measuring server or in this process.
#
# In: of a later repeat the first one's shard, the build file. Out: the shard.
# In bash, as a Python script would spend half a second on imports before each shard.

client="${snakemake[scriptdir]}/gpushmoo/measuring/client.py"
exec "${snakemake_params[python]}" -I -S "$client" gpushmoo.measuring.job GPUSHMOO_MEASURING_SERVER \
    out="${snakemake_output[0]}" log="${snakemake_log[0]}" first="${snakemake_input[first]:-}" \
    build="${snakemake_input[build]:-}" <<<"${snakemake_params[request]}"
