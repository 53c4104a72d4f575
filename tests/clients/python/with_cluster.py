"""redis-py in Cluster mode: it finds the leader, reads from replicas, and follows the leader."""

from redis.cluster import ClusterNode, LoadBalancingStrategy, RedisCluster

import group
from holds import run


def client(**options):
    nodes = [ClusterNode(host, port) for host, port in group.addresses("NODES")]
    return RedisCluster(startup_nodes=nodes, decode_responses=True, **options)


def finds_the_leader():
    r = client()
    r.set("cluster:a", "1")
    assert r.incr("cluster:a") == 2
    assert len(r.get_primaries()) == 1
    assert r.mset_nonatomic({"cluster:b": "x", "cluster:c": "y"})
    pipeline = r.pipeline()
    pipeline.get("cluster:a").get("cluster:b").set("cluster:d", "z")
    assert pipeline.execute() == ["2", "x", True]
    assert r.eval("return redis.call('GET', KEYS[1])", 1, "cluster:a") == "2"


def reads_from_replicas():
    client().set("cluster:read", "1")
    r = client(load_balancing_strategy=LoadBalancingStrategy.ROUND_ROBIN)
    group.until(lambda: all(r.get("cluster:read") == "1" for _ in range(9)))


run("redis-py cluster", [finds_the_leader, reads_from_replicas, *group.checks(client())])
