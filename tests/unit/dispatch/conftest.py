"""Fixtures of the dispatcher's tests."""

import time
from collections import Counter

import pytest


@pytest.fixture(scope="module")
def workers(importable):
    """The module of workers that a spawned process can import."""
    return importable("dispatch_workers")


class Record:
    """Records the calls of all callbacks."""

    def __init__(self):
        self.successes, self.errors, self.timeouts = {}, {}, {}
        self.starts, self.retries, self.faults, self.setup_failures = [], [], [], []
        self.exits = 0
        self.answers = Counter()
        self.workers = Counter()

    def _answer(self, into, task_id, value, worker_id):
        into[task_id] = value
        self.answers[task_id] += 1
        self.workers[worker_id] += 1

    def on_exit(self):
        self.exits += 1

    @property
    def callbacks(self):
        return {
            "on_success": lambda *answer: self._answer(self.successes, *answer),
            "on_error": lambda *answer: self._answer(self.errors, *answer),
            "on_timeout": lambda *answer: self._answer(self.timeouts, *answer),
            "on_setup_fail": lambda *what: self.setup_failures.append(what),
            "on_retry": lambda *what: self.retries.append(what),
            "on_fault": self.faults.append,
            "on_exit": self.on_exit,
        }

    def callbacks_before(self, action):
        """Return the same callbacks; `action` gets each result before it is recorded."""
        answer = self.callbacks["on_success"]
        return self.callbacks | {"on_success": lambda *what: (action(*what), answer(*what))}

    def slow_callbacks(self, seconds):
        """Return the same callbacks; each result takes `seconds` in the parent's thread."""
        return self.callbacks_before(lambda *_: time.sleep(seconds))

    def assert_each_answered_once(self, count):
        assert sorted(self.answers.elements()) == list(range(count))
        assert self.exits == 1


@pytest.fixture
def record():
    return Record()
