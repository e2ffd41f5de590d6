"""A real SLURM on this machine, and access to its jobs."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

N_NODES = 14
N_PORTS = 100
RESTART_DELAY = 3  # seconds: a node refuses a job that restarts within a second of its end
TIMEOUT = 180.0  # seconds
SCRIPTS = Path(__file__).parents[2] / "scripts" / "slurm"


@pytest.fixture(autouse=True)
def no_leaks():
    """Check no leaks: concurrent cases hold processes and files open."""


class Cluster:
    """A private SLURM: clients, daemons, jobs and their processes."""

    def __init__(self, root, folder):
        self.root = root
        self.folder = folder
        self.nodes = [f"n{number}" for number in range(1, N_NODES + 1)]
        self.configuration = root / "slurm.conf"
        self._client_lock = threading.RLock()
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("SLURM", "SBATCH", "SQUEUE"))
        }
        self.environment = {
            **inherited,
            "SLURM_CONF": str(self.configuration),
            "VIRNUCPRO_DEVICES": "cpu:2",
            "VIRNUCPRO": str(Path(sys.executable).with_name("virnucpro")),
        }

    def client(self, *command):
        """Run a SLURM command; return its output."""
        with self._client_lock:
            done = subprocess.run(
                [*map(str, command)],
                env=self.environment,
                cwd=self.folder,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout.strip()

    def submit(self, script, *arguments, options=()):
        """Submit a script of scripts/slurm; return the job's number."""
        log = f"--output={self.folder}/job-%j.log"
        return self.client(
            "sbatch", "--parsable", log, *options, SCRIPTS / f"{script}.sbatch", *arguments
        )

    def job(self, number):
        """Return a job's fields as SLURM shows them."""
        line = self.client("scontrol", "-o", "show", "job", number)
        return dict(field.split("=", 1) for field in line.split() if "=" in field)

    def minutes(self, number):
        """Return the whole minutes that a job has run; less than an hour."""
        return int(self.job(number)["RunTime"].split(":")[1])

    def limit(self, number, minutes):
        """Change the time limit of a running job."""
        self.client("scontrol", "update", f"JobId={number}", f"TimeLimit={minutes}")

    def queue(self):
        return self.client("squeue", "--noheader").splitlines()

    def log(self, number):
        path = self.folder / f"job-{number}.log"
        return path.read_text() if path.exists() else ""

    def until(self, what, condition):
        """Wait until `condition` returns a true value; return that value."""
        deadline = time.monotonic() + TIMEOUT
        while not (found := condition()):
            if time.monotonic() > deadline:
                pytest.fail(f"in {TIMEOUT:.0f} s there was no {what}; the queue: {self.queue()}")
            time.sleep(0.2)
        return found

    def until_out(self, number):
        """Wait until a job has ended or is back in the queue; return its state."""

        def out():
            job = self.job(number)
            back = job["JobState"] == "PENDING" and int(job["Restarts"]) > 0
            return job["JobState"] if back or _is_over(job) else None

        return self.until(f"end of attempt {number}", out)

    def until_over(self, number):
        """Wait until a job has ended; return its exit code. Start a delayed restart early."""

        released = set()

        def over():
            job = self.job(number)
            attempt = job["Restarts"]
            if job["Reason"] == "BeginTime" and attempt not in released:
                released.add(attempt)
                start = f"StartTime=now+{RESTART_DELAY}seconds"
                self.client("scontrol", "update", f"JobId={number}", start)
            return job if _is_over(job) else None

        code, killer = self.until(f"end of job {number}", over)["ExitCode"].split(":")
        return int(code) or -int(killer)

    def processes(self, number=None):
        """Return (pid, program) of the live processes of one job or of all, the oldest first."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # ended meanwhile, or a zombie
                variables = (folder / "environ").read_bytes().decode(errors="replace").split("\0")
                values = dict(variable.partition("=")[::2] for variable in variables)
                job = values.get("SLURM_JOB_ID")
                ours = values.get("SLURM_CONF") == str(self.configuration)
                if ours and job is not None and number in {None, job}:
                    found.append((int(folder.name), (folder / "exe").readlink().name))
        return sorted(found)

    def program(self, number):
        """Return the pids of virnucpro in a job, the coordinator first."""
        return [pid for pid, name in self.processes(number) if name.startswith("python")]

    def send(self, number, signum):
        """Send a signal to the program in a job."""
        _signal(self.program(number), signum)

    def stop_until_warned(self, element, number):
        """Stop the program of a job until SLURM warns it of a nearby time limit, which is set here.

        A program that SLURM has continued may have ended by the warning.
        """
        pid = self.until(f"program of job {number}", lambda: self.program(number))[0]

        def warned():
            try:
                status = Path(f"/proc/{pid}/status").read_text()
            except (FileNotFoundError, ProcessLookupError):
                return True
            waiting = int(status.partition("ShdPnd:")[2].split()[0], 16)
            return waiting >> (signal.SIGTERM - 1) & 1

        self.send(number, signal.SIGSTOP)
        self.limit(element, self.minutes(element) + 2)
        self.until("warning before the time limit", warned)

    def lose_node(self, number):
        """Kill the node of a job: its daemon and all processes of the job at once."""
        ours = [pid for pid, _ in self.processes(number)]
        daemons = {_parent(pid) for pid in ours} - {*ours, 1}
        node = f"slurmd-{self.job(number)['NodeList']}"
        _signal([self.daemon(node), *daemons, *ours])
        self._pid_file(node).unlink()

    def nodes_alive(self):
        """Return the names of the nodes' daemons."""
        return [path.stem for path in self.root.glob("slurmd-*.pid")]

    @contextlib.contextmanager
    def without_controller(self, number):
        """Kill the controller and restart it after the block; no client runs meanwhile.

        The restarted controller knows this job and all earlier ones.
        """
        with self._client_lock:
            self._until_saved(number)
            _signal([self.daemon("slurmctld")])
            try:
                yield
            finally:
                self.client("slurmctld", "-f", self.configuration)
                self.until("answer from the controller", self._controller_answers)

    def _until_saved(self, number):
        """Wait until the controller has saved its state, which it does every few seconds.

        A killed controller loses unsaved jobs, running ones included, and reuses their numbers. The
        program is stopped meanwhile, so that it does not end.
        """
        saved, before = self.root / "state" / "job_state", time.time_ns()
        self.send(number, signal.SIGSTOP)
        self.client("scontrol", "update", f"JobId={number}", "Comment=to-be-saved")
        self.until("saved state", lambda: saved.exists() and saved.stat().st_mtime_ns > before)
        self.send(number, signal.SIGCONT)

    def _controller_answers(self):
        ping = ["scontrol", "ping"]
        return not subprocess.call(ping, env=self.environment, stdout=subprocess.DEVNULL)

    def daemon(self, name):
        return int(self._pid_file(name).read_text())

    def _pid_file(self, name):
        return self.root / f"{name}.pid"


_NOT_ENDED = {"PENDING", "RUNNING", "SIGNALING", "COMPLETING"}
"""States of a job that SLURM has not ended yet; while a preemption is sent, it is SIGNALING."""


def _is_over(job):
    return job["JobState"] not in _NOT_ENDED


def _signal(pids, signum=signal.SIGKILL):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signum)


def _parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _is_running(name):
    for path in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):  # ended meanwhile
            if path.read_text().strip() == name:
                return True
    return False


def _free_ports():
    """Return the first of N_PORTS consecutive free ports."""
    for base in range(17_000, 30_000, N_PORTS):
        with contextlib.ExitStack() as opened:
            try:
                for port in range(base, base + N_PORTS):
                    opened.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            return base
    raise AssertionError("no free ports")


@pytest.fixture(scope="module")
def cluster(shared, tmp_path_factory):
    """A cluster that exists while this module's tests run."""
    scripts = shared / "slurm"
    if not (scripts / "start-slurm.sh").is_file():
        pytest.skip(f"no {scripts}/start-slurm.sh: point VIRNUCPRO_SHARED at a folder that has it")
    if os.geteuid() != 0:
        pytest.skip("only root can start a cluster of its own: run as root on a throw-away machine")
    if _is_running("slurmd"):
        pytest.skip("another SLURM runs here and shares control groups with this one: stop it")
    # Its authentication daemon runs as another user, who cannot read pytest's folders.
    root = Path(tempfile.mkdtemp(prefix="virnucpro-slurm-", dir="/var/tmp"))
    root.chmod(0o755)
    settings = {"RIG": root, "NODES": N_NODES, "CPUS": 2, "MEM": 2500, "BASEPORT": _free_ports()}
    environment = {**os.environ, **{name: str(value) for name, value in settings.items()}}
    try:
        _run_script(scripts / "start-slurm.sh", environment)
        cluster = Cluster(root, tmp_path_factory.mktemp("jobs"))
        yield cluster
        # The script below stops the daemons one by one, which takes seconds each.
        _signal(map(cluster.daemon, cluster.nodes_alive()), signal.SIGTERM)
    finally:
        _run_script(scripts / "stop-slurm.sh", environment | {"WIPE": "1"})
        shutil.rmtree(root, ignore_errors=True)


def _run_script(script, environment):
    done = subprocess.run(
        [script], env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, f"{script}: {done.stdout}{done.stderr}"
