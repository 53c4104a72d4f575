"""redis-py's Sentinel: it names the leader and the replicas, and a client follows the leader."""

from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel

import group
from holds import run

# By default it tries each dead node for seconds before it asks the next.
impatient = {"retry": Retry(NoBackoff(), 1)}
sentinel = Sentinel(group.addresses("SENTINELS"), socket_timeout=5, sentinel_kwargs=impatient)
leader = sentinel.master_for("mymaster", socket_timeout=5)


def names_the_replicas():
    assert len(sentinel.discover_slaves("mymaster")) == 2
    leader.set("key", "value")
    follower = sentinel.slave_for("mymaster", socket_timeout=5)
    group.until(lambda: follower.get("key") == b"value")


run("redis-py sentinel", [names_the_replicas, *group.checks(leader)])
