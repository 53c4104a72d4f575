"""redis-py in Cluster mode: three nodes of Tidegate, started here, whose leader it finds and follows."""

import os
import shlex
import signal
import socket
import subprocess
import tempfile
import time

from redis.cluster import ClusterNode, LoadBalancingStrategy, RedisCluster

from holds import run

PATIENCE_S = 60


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    [one.close() for one in sockets]
    return ports


class Group:
    def __init__(self, folder):
        ports = free_ports(6)
        self.ports = ports[:3]
        nodes = " ".join(f"{n + 1}=127.0.0.1:{ports[n]}@{ports[n + 3]}" for n in range(3))
        self.nodes = {}
        for number, port in enumerate(self.ports, 1):
            folder_of_node = os.path.join(folder, str(number))
            os.mkdir(folder_of_node)
            flags = ["--port", str(port), "--bind", "127.0.0.1", "--dir", folder_of_node, "--cluster-enabled", "yes"]
            flags += ["--node-id", str(number), "--nodes", nodes]
            with open(os.path.join(folder_of_node, "log"), "w") as log:
                command = shlex.split(os.environ["SERVER"]) + flags
                self.nodes[port] = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def client(self, **options):
        nodes = [ClusterNode("127.0.0.1", port) for port in self.ports]
        return until(lambda: RedisCluster(startup_nodes=nodes, decode_responses=True, **options))

    def end(self):
        for process in self.nodes.values():
            process.kill()
            process.wait()


def until(call):
    """Repeats a call until it raises no error and returns something true."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            if got := call():
                return got
        except Exception:
            if time.monotonic() > deadline:
                raise
        assert time.monotonic() < deadline, "it returns nothing"
        time.sleep(0.02)


def finds_the_leader():
    r = group.client()
    assert until(lambda: r.set("cluster:a", "1"))
    assert r.incr("cluster:a") == 2
    assert len(r.get_primaries()) == 1
    assert r.mset_nonatomic({"cluster:b": "x", "cluster:c": "y"})
    pipeline = r.pipeline()
    pipeline.get("cluster:a").get("cluster:b").set("cluster:d", "z")
    assert pipeline.execute() == ["2", "x", True]
    assert r.eval("return redis.call('GET', KEYS[1])", 1, "cluster:a") == "2"


def reads_from_replicas():
    group.client().set("cluster:read", "1")
    r = group.client(load_balancing_strategy=LoadBalancingStrategy.ROUND_ROBIN)
    until(lambda: all(r.get("cluster:read") == "1" for _ in range(9)))


def follows_a_new_leader():
    r = group.client()
    assert until(lambda: r.set("cluster:before", "1"))
    leader = r.get_node_from_key("cluster:before").port
    group.nodes[leader].send_signal(signal.SIGKILL)
    assert until(lambda: r.set("cluster:after", "1"))
    assert r.get("cluster:before") == "1"
    until(lambda: r.get_node_from_key("cluster:before").port != leader)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        group = Group(folder)
        try:
            run("redis-py cluster", [finds_the_leader, reads_from_replicas, follows_a_new_leader])
        finally:
            group.end()
