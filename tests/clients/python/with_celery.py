"""Celery with the server as broker and as result store."""

import collections
import logging
import threading

from celery import Celery, chord, group
from celery.contrib.testing.worker import start_worker

from holds import URL, run

logging.disable(logging.CRITICAL)
app = Celery("programs", broker=URL + "/1", backend=URL + "/2")
app.conf.update(task_default_queue="celery-test", result_expires=600, broker_connection_retry_on_startup=True, task_acks_late=True)
runs, lock = collections.Counter(), threading.Lock()


@app.task
def add(a, b):
    with lock:
        runs[(a, b)] += 1
    return a + b


@app.task(bind=True, max_retries=3, default_retry_delay=0)
def fails_twice(self):
    if self.request.retries < 2:
        raise self.retry(exc=RuntimeError("again"), countdown=0)
    return self.request.retries


@app.task
def total(numbers):
    return sum(numbers)


def tasks_run_once_each_with_retries_and_chords():
    app.control.purge()
    with start_worker(app, concurrency=4, pool="threads", perform_ping_check=False, shutdown_timeout=60):
        numbers = group(add.s(n, 1) for n in range(200)).apply_async().get(timeout=120)
        assert numbers == [n + 1 for n in range(200)]
        assert fails_twice.delay().get(timeout=60) == 2
        assert add.apply_async((1, 2), countdown=0.2).get(timeout=60) == 3
        assert chord((add.s(n, 1000) for n in range(20)), total.s())().get(timeout=60) == 20_190
    assert all(count == 1 for (a, b), count in runs.items() if b == 1), runs


run("celery", [tasks_run_once_each_with_retries_and_chords])
