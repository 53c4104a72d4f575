"""Uses a client all the time, while ../group kills the leader of three nodes and hands leadership over."""

import os
import subprocess
import threading
import time

PATIENCE_S = 60


def addresses(variable):
    return [(host, int(port)) for host, port in (one.split(":") for one in os.environ[variable].split())]


def until(call):
    """Repeats a call until it returns something true."""
    deadline = time.monotonic() + PATIENCE_S
    while not call():
        assert time.monotonic() < deadline, "it never becomes true"
        time.sleep(0.01)


class Counter:
    """Increments a key again and again. A reply that is no higher than an earlier one shows that a change was lost."""

    def __init__(self, client):
        self.client = client
        self.acknowledged = 0
        self.lost = False
        self.failure = None
        self.pause_s = 0
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        last, at = 0, time.monotonic()
        while True:
            try:
                value = self.client.incr("counter")
            except Exception as error:
                self.failure = error
            else:
                now = time.monotonic()
                self.pause_s = max(self.pause_s, now - at)
                self.lost |= value <= last
                last, at = value, now
                self.acknowledged += 1
            time.sleep(0.001)

    def goes_on(self, change):
        """Asks ../group for a change, and waits until changes are acknowledged before and after it."""
        self.is_served()
        self.pause_s = 0
        subprocess.run([os.environ["GROUP"], change], check=True)
        self.is_served()
        print(f"{change}: no reply for {self.pause_s:.3f} s")
        assert not self.lost, "a change was lost"

    def is_served(self):
        enough = self.acknowledged + 20
        deadline = time.monotonic() + PATIENCE_S
        while self.acknowledged < enough:
            assert time.monotonic() < deadline, f"the client finds no leader: {self.failure!r}"
            time.sleep(0.001)


def checks(client):
    """The checks that each client passes."""
    counter = Counter(client)

    def follows_the_leader_after_a_kill():
        counter.goes_on("kill-leader")

    def follows_a_transfer_to_the_restarted_node():
        counter.goes_on("restart")
        counter.goes_on("transfer")

    return [follows_the_leader_after_a_kill, follows_a_transfer_to_the_restarted_node]
