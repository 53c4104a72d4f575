"""python-redis-lock: locks whose holders renew them, and whose waiters are woken."""

import threading

import redis
import redis_lock

from holds import URL, run

THREADS = 8


def threads_take_turns():
    count = 0

    def work():
        nonlocal count
        lock = redis_lock.Lock(redis.Redis.from_url(URL), "count", expire=10, auto_renewal=True)
        for _ in range(10):
            with lock:
                before = count
                threading.Event().wait(0.001)
                count = before + 1

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count == 10 * THREADS, count


def only_the_holder_releases_and_waiters_are_woken():
    connection = redis.Redis.from_url(URL)
    held, other = (redis_lock.Lock(connection, "held", expire=60) for _ in range(2))
    assert held.acquire(blocking=False) and not other.acquire(blocking=False)
    try:
        other.release()
        raise AssertionError("another has released it")
    except redis_lock.NotAcquired:
        pass
    assert other.locked() and other.get_owner_id() == held.id
    threading.Timer(0.05, held.release).start()
    assert other.acquire(timeout=30), "it is not woken"
    other.release()


run("python-redis-lock", [threads_take_turns, only_the_holder_releases_and_waiters_are_woken])
