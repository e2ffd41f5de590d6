"""Workers for the tests of the launcher: a module that is light to import."""

import os
import signal
import time
from pathlib import Path

from virnucpro.dispatch import BaseWorker


class Obedient(BaseWorker):
    """Does what a file says: the first word is a method, the others are its arguments."""

    def setup(self, gpu_id, seed, *, output_dir, device, threads, fail_on=None, note=""):
        if fail_on in (gpu_id, "all"):
            raise OSError(f"GPU {gpu_id} has fallen off the bus")
        self.gpu_id, self.seed, self.output_dir, self.note = gpu_id, seed, output_dir, note
        self.told = {"device": device, "threads": threads}

    def process(self, data):
        what, *arguments = Path(data).read_text().split() or ["ok"]
        return getattr(self, what)(*arguments)

    def ok(self):
        return {"bytes": 7, "note": self.note, "list": [1, 2]}

    def report(self):
        names = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")
        environment = {name: os.environ.get(name) for name in names}
        return {"gpu": self.gpu_id, **self.told, "environment": environment}

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

    def slowly(self, steps):
        for _ in range(int(steps)):
            time.sleep(0.1)
            self.progressed()
        return {}

    def spoil(self):
        """Put a folder where the table is to stand."""
        table = self.output_dir / "launch.tsv"
        table.unlink()
        table.mkdir()
        return {}


class Returns(BaseWorker):
    """Returns what a file says, as Python writes it."""

    def setup(self, gpu_id, seed, **keywords):
        self.told = gpu_id, seed
        self.keywords = keywords

    def process(self, data):
        source = Path(data).read_text()
        holds_itself = {}
        holds_itself["again"] = holds_itself
        names = {"holds_itself": holds_itself, "keywords": self.keywords, "data": data}
        return eval(source, names)


class HangsInSetup(Returns):
    """Its worker 1 never sets up."""

    def setup(self, gpu_id, seed, **keywords):
        super().setup(gpu_id, seed, **keywords)
        if gpu_id == 1:
            time.sleep(60)


class PutsAway(Returns):
    """Puts away as it is told: slowly, or not at all."""

    def cleanup(self):
        time.sleep(self.keywords["seconds"])
        raise OSError("the door is jammed")


class ChangesFolder(Returns):
    def setup(self, gpu_id, seed, **keywords):
        super().setup(gpu_id, seed, **keywords)
        os.chdir("/")


class MadeOf(BaseWorker):
    """Returns what it is told for each batch, for any records."""

    def setup(self, gpu_id, seed, made):
        self.told = gpu_id, seed
        self.made = made

    def process(self, data):
        if self.made == "fails":
            raise ValueError("no luck")
        return {"nones": [None] * len(data), "tuple": tuple({"n": one} for one in data)}[self.made]


class Plain(BaseWorker):
    """Takes no keywords."""

    def setup(self, gpu_id, seed):
        self.told = gpu_id, seed

    def process(self, data):
        return {"name": Path(data).name}


class Doubles(BaseWorker):
    """Records: doubles a number; some numbers are bad."""

    def setup(self, gpu_id, seed, fail=False):
        self.told = gpu_id, seed
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
    """Has the methods of a worker and is none."""
