"""A script for the public dispatcher; only its imports are changed."""

import sys
import time

from virnucpro.dispatch import BaseWorker, Dispatcher
from virnucpro.dispatch.ui import RichDispatcher


class Classifier(BaseWorker):
    def setup(self, gpu_id: int, seed: int, **kwargs):
        self.gpu_id, self.seed = gpu_id, seed
        self.model = kwargs.get("model_name", "default")
        print(f"[GPU {gpu_id}] {self.model} is loaded")

    def process(self, image):
        if image.endswith("13.jpg"):
            raise RuntimeError(f"{image} is damaged")
        time.sleep(5.0 if image.endswith("27.jpg") else 0.002)
        return {"image": image, "gpu": self.gpu_id, "seed": self.seed}

    def cleanup(self):
        print(f"[GPU {self.gpu_id}] cleaned up")


def images(number):
    for one in range(number):
        yield f"images/{one:03d}.jpg"


def plain():
    seen = {"ok": 0, "errors": [], "timeouts": [], "started": set(), "exits": 0, "gpus": set()}

    def on_success(task_id, result, worker_id):
        assert result["image"] == f"images/{task_id:03d}.jpg"
        assert (result["gpu"], result["seed"]) == (worker_id, 7 + worker_id)
        seen["ok"] += 1
        seen["gpus"].add(worker_id)

    def on_exit():
        seen["exits"] += 1

    dispatcher = Dispatcher(worker_cls=Classifier, gpu_ids=[0, 1], queue_size=32)
    dispatcher.run(
        generator=images(60),
        on_success=on_success,
        on_error=lambda task_id, error, _worker: seen["errors"].append((task_id, error)),
        on_timeout=lambda task_id, limit, _worker: seen["timeouts"].append((task_id, limit)),
        on_setup_fail=lambda _gpu, error: sys.exit(error),
        on_task_start=lambda task_id, _worker: seen["started"].add(task_id),
        on_exit=on_exit,
        base_seed=7,
        task_timeout=0.5,
        total_tasks=60,
        model_name="resnet",
    )
    [(task_id, error)] = seen["errors"]
    assert (task_id, error.strip().splitlines()[-1]) == (
        13,
        "RuntimeError: images/013.jpg is damaged",
    )
    assert seen["timeouts"] == [(27, 0.5)]
    assert (seen["ok"], seen["exits"], seen["gpus"]) == (58, 1, {0, 1})
    assert seen["started"] == set(range(60))
    stats = dispatcher.get_stats()
    print(f"{stats['completed']} completed, {stats['failed']} failed, {stats['timeouts']} late")


def with_table():
    dispatcher = RichDispatcher(
        worker_cls=Classifier, gpu_ids=[0, 1], queue_size=32, show_ui=True, refresh_rate=4.0
    )
    stats = dispatcher.run(generator=images(40), model_name="resnet", task_timeout=0.5)
    print(f"{stats['completed']} completed, {stats['failed']} failed, {stats['timeouts']} late")
    for gpu_id, one in stats["gpu_status"].items():
        print(f"GPU {gpu_id}: {one['status']}")


if __name__ == "__main__":
    plain()
    with_table()
