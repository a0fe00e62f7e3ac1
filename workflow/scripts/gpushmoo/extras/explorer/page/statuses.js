// How a cell ended, in words. Limits are part of the experiment; the rest are faults.

const MEANINGS = {
  ok: "verified",
  too_many_threads: "more threads than a block may have",
  out_of_resources: "needs more than the device has",
  invalid: "ruled out by the kernel",
  not_searched: "left out by the search",
  skipped: "not tried, because other cells of its code failed",
  build_failed: "did not compile",
  workload_failed: "its workload raised an error",
  launch_failed: "the launch failed",
  wrong_result: "wrong result",
  timing_mismatch: "works less while it is timed",
  timeout: "ran too long",
  throttled: "the device was throttled",
  device_lost: "the device was lost",
};
const LIMITS = ["too_many_threads", "out_of_resources", "invalid"];

export function meaning(status) {
  return MEANINGS[status] ?? status;
}

export function isFault(status) {
  return status !== "ok" && status !== "not_searched" && !LIMITS.includes(status);
}
