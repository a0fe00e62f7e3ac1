"""A throw-away Slurm on this host: munge, a controller, several virtual nodes with fake GPUs.

Everything is in one folder, which all its parents must let others enter. The only trace outside
it is the link /etc/slurm/slurm.conf: the plugin's job step drops SLURM_CONF from the environment of
its inner ``srun``.
"""

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
from functools import partial
from pathlib import Path

from processes import marked
from projects import wait_until as poll

PROGRAMS = ("munged", "mungekey", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scontrol")
SYSTEM_CONF = Path("/etc/slurm/slurm.conf")
PORT = 16817
DEADLINE_S = 60.0

CONF = """
ClusterName=gpushmoo
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# Else a job that is queued again waits two minutes for its credential to expire.
AuthInfo=socket={root}/munge/socket,cred_expire=5
MpiDefault=none
# linuxproc leaves orphans after a node's failure; cgroups are not ours to use.
ProctrackType=proctrack/pgid
TaskPlugin=task/none
TaskProlog={root}/prolog
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
# Cores and memory of the nodes need not exist.
SlurmdParameters=config_overrides
GresTypes=gpu
PropagateResourceLimits=NONE
MailProg=/bin/true
ReturnToService=2
SlurmctldTimeout=30
SlurmdTimeout=8
MessageTimeout=10
KillWait=2
# A job's time limit is kept to the minute that was asked for.
OverTimeLimit=0
MinJobAge=600
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,batch_sched_delay=0,bf_interval=2
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool/%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd-%n.pid
SlurmctldLogFile={root}/log/slurmctld.log
SlurmdLogFile={root}/log/slurmd-%n.log
PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
NODE = (
    "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} Sockets=1 "
    "CoresPerSocket=8 ThreadsPerCore=1 RealMemory=64000 Gres=gpu:2 State=UNKNOWN\n"
)


def why_not() -> str | None:
    """Why no Slurm can be started here, in one sentence; None when it can."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"Slurm is not installed ({', '.join(missing)}); 'make test-cluster' installs it."
    if os.geteuid() != 0:
        return "Slurm's daemons are started as root only."
    if SYSTEM_CONF.exists() and not SYSTEM_CONF.is_symlink():
        return f"{SYSTEM_CONF} is there: this host belongs to a real cluster."
    return None


wait_until = partial(poll, seconds=DEADLINE_S)


def _die_with_tests() -> None:
    """Daemons in a session of their own, which the kernel ends when the tests are killed."""
    os.setsid()
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)


# Each node has device locks of its own, as hosts have: else all jobs would wait for one CPU.
PROLOG = """#!/bin/sh
echo "export GPUSHMOO_LOCK_DIR={root}/locks/$SLURMD_NODENAME"
"""


class Slurm:
    """The cluster; `nodes` virtual ones named moo0, moo1, … with 8 cores and two fake GPUs each."""

    def __init__(self, root: Path, nodes: int = 10) -> None:
        self.root = root
        self.nodes = [f"moo{i}" for i in range(nodes)]
        # Named to the daemons by its place: they look for gres.conf beside it, not beside the link.
        self._conf = root / "slurm.conf"
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    # Starting and stopping

    def start(self) -> None:
        """Write the configuration and start everything; all nodes are idle afterwards."""
        for name in ("munge", "log", "state", "dev", *(f"spool/{n}" for n in self.nodes)):
            (self.root / name).mkdir(parents=True)
        # munged refuses a socket in a folder that others may write to, and one they may not enter.
        for folder in (self.root, self.root / "munge"):
            folder.chmod(0o755)
        host = os.uname().nodename.split(".")[0]
        text = CONF.format(host=host, port=PORT, root=self.root)
        gres = ""
        for i, name in enumerate(self.nodes, start=1):
            text += NODE.format(name=name, host=host, port=PORT + i)
            gres += f"NodeName={name} Name=gpu File={self.root}/dev/nvidia[0-1]\n"
        for i in range(2):
            # Only what resolves to a character device and ends in its index sets the job's
            # CUDA_VISIBLE_DEVICES.
            (self.root / f"dev/nvidia{i}").symlink_to("/dev/null")
        self._conf.write_text(text)
        (self.root / "prolog").write_text(PROLOG.format(root=self.root))
        (self.root / "prolog").chmod(0o755)
        (self.root / "gres.conf").write_text(gres)
        SYSTEM_CONF.parent.mkdir(parents=True, exist_ok=True)
        SYSTEM_CONF.unlink(missing_ok=True)
        SYSTEM_CONF.symlink_to(self._conf)
        munge = self.root / "munge"
        subprocess.run(["mungekey", "--create", "--keyfile", munge / "key"], check=True)
        self._daemon(
            "munged",
            "munged",
            "--foreground",
            f"--key-file={munge / 'key'}",
            f"--socket={munge / 'socket'}",
            f"--pid-file={munge / 'pid'}",
            f"--log-file={self.root / 'log/munged.log'}",
            f"--seed-file={munge / 'seed'}",
        )
        wait_until((munge / "socket").exists, "the start of munged")
        self.start_controller()
        for name in self.nodes:
            self.start_node(name)

    def stop(self) -> None:
        """Cancel all jobs, stop all daemons, remove the link."""
        if self._alive("slurmctld"):
            subprocess.run(["scancel", "--user=root"], timeout=DEADLINE_S, check=False)
            wait_until(lambda: not self.jobs(), "the end of all cancelled jobs")
        for name in reversed(list(self._daemons)):
            self._stop(name)
        if SYSTEM_CONF.is_symlink() and SYSTEM_CONF.readlink() == self._conf:
            SYSTEM_CONF.unlink()

    def start_controller(self) -> None:
        """Start slurmctld; it answers afterwards and knows the jobs of before."""
        self._daemon("slurmctld", "slurmctld", "-D", "-f", str(self._conf))
        wait_until(self._controller_answers, "an answer of slurmctld")

    def stop_controller(self) -> None:
        """Stop slurmctld; jobs go on."""
        self._stop("slurmctld")

    def start_node(self, name: str) -> None:
        """Start the node's daemon; the node takes jobs afterwards."""
        self._daemon(name, "slurmd", "-D", "-f", str(self._conf), "-N", name)
        usable = ("IDLE", "MIXED", "ALLOCATED")
        wait_until(lambda: self.node_state(name) in usable, f"node {name} coming up")

    def lose_node(self, name: str) -> None:
        """The node's daemon and all it runs are gone at once, as after a power cut."""
        self.lose_daemon(name)
        for pid in _processes_of(name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def lose_daemon(self, name: str) -> None:
        """The node's daemon is gone, its jobs go on, as when its network is cut off."""
        self._stop(name, signal.SIGKILL)

    # Asking

    def jobs(self) -> list[dict[str, str]]:
        """Jobs that are not over: id, state, node, comment (the rule and its wildcards)."""
        fields = ("id", "state", "node", "comment")
        done = subprocess.run(
            ["squeue", "-h", "-o", "%i|%T|%N|%k"],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=True,
        )
        return [dict(zip(fields, x.split("|"), strict=True)) for x in done.stdout.splitlines()]

    def job(self, job_id: str) -> dict[str, str]:
        """What ``scontrol show job`` tells of a job, also of one that is over."""
        return _pairs(_output("scontrol", "-o", "show", "job", job_id))

    def node_state(self, name: str) -> str:
        """Such as IDLE, MIXED, DOWN* or IDLE+DRAIN."""
        return _pairs(_output("scontrol", "-o", "show", "node", name)).get("State", "")

    def submit(self, *args: str, where: Path) -> str:
        """``sbatch`` with these arguments in a folder; the job's number."""
        done = subprocess.run(
            ["sbatch", "--parsable", *args],
            cwd=where,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=True,
        )
        return done.stdout.strip()

    def cancel(self, *args: str) -> None:
        """``scancel`` with these arguments, as a user or an administrator does."""
        subprocess.run(["scancel", *args], timeout=DEADLINE_S, check=True)

    def control(self, *args: str) -> None:
        """``scontrol`` with these arguments, which must succeed."""
        subprocess.run(["scontrol", *args], timeout=DEADLINE_S, check=True)

    # Processes

    def _controller_answers(self) -> bool:
        return " is UP" in _output("scontrol", "ping")

    def _alive(self, name: str) -> bool:
        daemon = self._daemons.get(name)
        return daemon is not None and daemon.poll() is None

    def _daemon(self, name: str, *command: str) -> None:
        with (self.root / f"log/{name}.out").open("ab") as out:
            self._daemons[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                preexec_fn=_die_with_tests,
            )

    def _stop(self, name: str, how: int = signal.SIGTERM) -> None:
        daemon = self._daemons.pop(name)
        daemon.send_signal(how)
        try:
            daemon.wait(timeout=20)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()


def _processes_of(node: str) -> list[int]:
    """Processes of jobs on the node, each job's supervisor (slurmstepd) before what it started."""
    parents = {p.pid: p.parent for p in marked(node, "SLURMD_NODENAME")}
    above = set(parents.values()) - parents.keys()
    return [*sorted(p for p in above if _name(p) == "slurmstepd"), *sorted(parents)]


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    return done.stdout


def _pairs(line: str) -> dict[str, str]:
    """``Name=value Name=value`` as a mapping."""
    return dict(x.split("=", 1) for x in line.split() if "=" in x)
