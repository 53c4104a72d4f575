"""RQ: jobs with results, retries and dependencies."""

import logging

from redis import Redis
from rq import Queue, Retry, SimpleWorker

from holds import PORT, run
from rq_jobs import add, fails_twice

logging.disable(logging.CRITICAL)


def jobs_run_once_each_with_retries():
    connection = Redis(host="127.0.0.1", port=PORT)
    queue = Queue("rq-test", connection=connection)
    sums = [queue.enqueue(add, n, 1) for n in range(100)]
    stubborn = queue.enqueue(fails_twice, "a", retry=Retry(max=3))
    behind = queue.enqueue(add, 1, 1, depends_on=sums[-1])
    SimpleWorker([queue], connection=connection).work(burst=True)
    assert [job.return_value(refresh=True) for job in sums] == [n + 1 for n in range(100)]
    assert stubborn.return_value(refresh=True) == 3 and behind.return_value(refresh=True) == 2
    assert len(queue) == 0 and len(queue.failed_job_registry) == 0
    assert queue.finished_job_registry.count == 102


run("rq", [jobs_run_once_each_with_retries])
