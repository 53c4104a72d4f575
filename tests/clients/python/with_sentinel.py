"""redis-py's Sentinel: three servers form a group, the leader is killed, and the program goes on with its successor."""

import os
import shlex
import shutil
import socket
import subprocess
import tempfile
import time

import redis
from redis.sentinel import MasterNotFoundError, Sentinel

from holds import run

PATIENCE = 60


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Group:
    """Three nodes, by number from 1."""

    def __init__(self):
        self.folder = tempfile.mkdtemp()
        ports = free_ports(9)
        self.ports, node_ports, self.sentinels = ports[:3], ports[3:6], ports[6:]
        self.nodes = " ".join(f"{n + 1}=127.0.0.1:{self.ports[n]}@{node_ports[n]}" for n in range(3))
        self.processes = [self.start(number) for number in (1, 2, 3)]

    def start(self, number):
        folder = os.path.join(self.folder, str(number))
        os.makedirs(folder)
        flags = {
            "port": self.ports[number - 1],
            "sentinel-port": self.sentinels[number - 1],
            "bind": "127.0.0.1",
            "dir": folder,
            "node-id": number,
            "nodes": self.nodes,
        }
        words = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
        with open(os.path.join(folder, "log"), "w") as log:
            return subprocess.Popen(shlex.split(os.environ["SERVER"]) + words, stdout=log, stderr=log)

    def kill(self, port):
        process = self.processes[self.ports.index(port)]
        process.kill()
        process.wait()

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()
        shutil.rmtree(self.folder)


def until(call):
    """Repeats a call while it fails as it may during an election."""
    begun = time.monotonic()
    while True:
        try:
            return call()
        except (redis.ConnectionError, redis.TimeoutError, redis.ReadOnlyError, MasterNotFoundError):
            assert time.monotonic() - begun < PATIENCE, "no node leads"
            time.sleep(0.01)


def a_program_follows_the_leader():
    group = Group()
    try:
        sentinel = Sentinel([("127.0.0.1", port) for port in group.sentinels], socket_timeout=5)
        leader = sentinel.master_for("mymaster", socket_timeout=5)
        assert until(lambda: leader.set("key", "value")) is True
        first = until(lambda: sentinel.discover_master("mymaster"))
        assert len(sentinel.discover_slaves("mymaster")) == 2
        group.kill(first[1])
        assert until(lambda: leader.get("key")) == b"value"
        assert until(lambda: leader.set("key", "other")) is True
        assert until(lambda: sentinel.discover_master("mymaster")) != first
        follower = sentinel.slave_for("mymaster", socket_timeout=5)
        begun = time.monotonic()
        while until(lambda: follower.get("key")) != b"other":
            assert time.monotonic() - begun < PATIENCE, "the follower lags"
    finally:
        group.end()


run("redis-py Sentinel", [a_program_follows_the_leader])
