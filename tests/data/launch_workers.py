"""Workers for the launcher's tests; the module imports nothing heavy."""

import os
import signal
import time
from pathlib import Path

from virnucpro.dispatch import BaseWorker


class Obedient(BaseWorker):
    """Calls the method that the first word of a file names; the other words are arguments."""

    def setup(self, gpu_id, seed, *, output_dir, device, threads, fail_on=None, note=""):
        if fail_on in (gpu_id, "all"):
            raise OSError(f"GPU {gpu_id} has fallen off the bus")
        self.gpu_id, self.seed, self.output_dir, self.note = gpu_id, seed, output_dir, note
        self.arguments = {"device": device, "threads": threads}

    def process(self, data):
        what, *arguments = Path(data).read_text().split() or ["ok"]
        return getattr(self, what)(*arguments)

    def ok(self):
        return {"bytes": 7, "note": self.note, "list": [1, 2]}

    def report(self):
        names = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")
        environment = {name: os.environ.get(name) for name in names}
        return {"gpu": self.gpu_id, **self.arguments, "environment": environment}

    def partial(self):
        return {"bytes": 3, "complete": False}

    def again(self):
        return {"skipped": True}

    def last(self, seconds):
        return {"duration": float(seconds)}

    def number(self):
        return 42

    def broken(self):
        error = ValueError("cannot be\tread")
        error.add_note("look at line 3")
        raise error

    def die(self):
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)

    def die_once(self):
        mark = self.output_dir / "died"
        if not mark.exists():
            mark.touch()
            self.die()
        return {"second": True}

    def sleep(self, seconds):
        print("sleeping", flush=True)
        time.sleep(float(seconds))
        return {}

    def shown(self, count):
        """Wait until the table of the launch has this number of files that are done."""
        deadline = time.monotonic() + 30
        while (self.output_dir / "launch.tsv").read_text().count("\tdone\t") < int(count):
            assert time.monotonic() < deadline, "the table is not renewed"
            time.sleep(0.05)
        return {}

    def slowly(self, steps):
        for _ in range(int(steps)):
            time.sleep(0.1)
            self.progressed()
        return {}

    def spoil(self):
        """Replace the table by a folder of its name."""
        table = self.output_dir / "launch.tsv"
        table.unlink()
        table.mkdir()
        return {}


class Returns(BaseWorker):
    """Returns the value of the Python expression in a file."""

    def setup(self, gpu_id, seed, **keywords):
        self.arguments = gpu_id, seed
        self.keywords = keywords

    def process(self, data):
        source = Path(data).read_text()
        contains_itself = {}
        contains_itself["again"] = contains_itself
        names = {"contains_itself": contains_itself, "keywords": self.keywords, "data": data}
        return eval(source, names)


class HangsInSetup(Returns):
    """Its worker 1 hangs in the setup."""

    def setup(self, gpu_id, seed, **keywords):
        super().setup(gpu_id, seed, **keywords)
        if gpu_id == 1:
            time.sleep(60)


class KilledInSetup(Returns):
    """Is killed in its first `times` setups; `output_dir` counts them."""

    def setup(self, gpu_id, seed, **keywords):
        super().setup(gpu_id, seed, **keywords)
        marks = keywords["output_dir"]
        if len(list(marks.glob("killed-*"))) < keywords["times"]:
            (marks / f"killed-{os.getpid()}").touch()
            os.kill(os.getpid(), signal.SIGKILL)


class NotRestartable(Returns):
    """Is killed in its first file; no later setup succeeds."""

    def setup(self, gpu_id, seed, **keywords):
        super().setup(gpu_id, seed, **keywords)
        self.mark = keywords["output_dir"] / "killed"
        if self.mark.exists():
            raise OSError("no device")

    def process(self, data):  # noqa: ARG002 - the signature of BaseWorker
        self.mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


class FailsInCleanup(Returns):
    """Its cleanup takes some time and fails."""

    def cleanup(self):
        time.sleep(self.keywords["seconds"])
        raise OSError("the door is jammed")


class ChangesFolder(Returns):
    def setup(self, gpu_id, seed, **keywords):
        super().setup(gpu_id, seed, **keywords)
        os.chdir("/")


class MadeOf(BaseWorker):
    """Returns results of the requested kind for any records."""

    def setup(self, gpu_id, seed, made):
        self.arguments = gpu_id, seed
        self.made = made

    def process(self, data):
        if self.made == "fails":
            raise ValueError("no luck")
        return {"nones": [None] * len(data), "tuple": tuple({"n": one} for one in data)}[self.made]


class Plain(BaseWorker):
    """Accepts no keywords."""

    def setup(self, gpu_id, seed):
        self.arguments = gpu_id, seed

    def process(self, data):
        return {"name": Path(data).name}


class Doubles(BaseWorker):
    """Doubles the numbers of records; some numbers make it fail."""

    def setup(self, gpu_id, seed, fail=False):
        self.arguments = gpu_id, seed
        if fail:
            raise OSError("no device")

    def process(self, data):
        numbers = [record["number"] for record in data]
        if 13 in numbers:
            raise ValueError("13 is bad")
        if 66 in numbers:
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)
        if 99 in numbers:
            return []
        return [{"twice": 2 * number} for number in numbers]


class NoWorker:
    """Not a BaseWorker."""
