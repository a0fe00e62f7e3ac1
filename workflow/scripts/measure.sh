# Rule measure: has one shard measured, by the run's measuring server or in this process.
#
# In: of a later repeat the first one's shard, the build file. Out: the shard.
# In bash, as a Python script would spend half a second on imports before each shard.

client="${snakemake[scriptdir]}/gpushmoo/measuring/client.py"
exec "${snakemake_params[python]}" -I -S "$client" "${snakemake_output[0]}" "${snakemake_log[0]}" \
    "${snakemake_input[first]:-}" "${snakemake_input[build]:-}" <<<"${snakemake_params[request]}"
