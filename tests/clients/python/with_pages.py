"""redis-py, as the pages of docs/coordination show it: each of their snippets, as it stands there."""

import pathlib
import re

import redis

from holds import PORT, run

PAGES = pathlib.Path(__file__).resolve().parents[3] / "docs" / "coordination"


class TooManyRequests(Exception):
    """What a snippet raises that is refused."""


def snippets(page):
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


def what_the_pages_show():
    r = redis.Redis(host="127.0.0.1", port=PORT, decode_responses=True, protocol=3)
    ran = 0
    for page in sorted(PAGES.glob("*.md")):
        r.flushall()
        r.set("stock:42", 10)
        _, lock = r.execute_command("LOCK.ACQUIRE", "lock:report", "worker-7:3f2a", "PX", 30000)
        names = dict(r=r, job="job-4711", owner="worker-7:3f2a", order=77, token=lock["token"], TooManyRequests=TooManyRequests)
        for snippet in snippets(page):
            exec(compile(snippet, str(page), "exec"), names)
            ran += 1
        assert names.get("granted", 1) == 1, page
    assert ran >= 6, f"{ran} snippets in Python"


run("docs/coordination in Python", [what_the_pages_show])
