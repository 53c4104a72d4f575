"""redis-py, as the pages show it: each of their snippets, unchanged except for the port."""

import contextlib
import io
import os
import pathlib
import re
import sqlite3

import redis

from holds import PORT, URL, run

LUA = pathlib.Path(__file__).resolve().parents[3] / "lua"
OVERVIEW = "docs/coordination/README.md"


class TooManyRequests(Exception):
    """Raised by a snippet that is refused."""


def snippets(language):
    for line in pathlib.Path(os.environ["SNIPPETS"]).read_text().splitlines():
        file, page, number, of, *_ = line.split("\t")
        if of == language:
            yield page, number, pathlib.Path(file).read_text().replace("6379", str(PORT))


def calls(r, command):
    return r.info("commandstats").get(f"cmdstat_{command.lower()}", {"calls": 0})["calls"]


def prints_as_shown(program, text, names):
    """Runs a snippet. What a line prints is shown behind it, as in `print(x)  # 1`; `...` stands for the rest."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(program, names)
    shown = re.findall(r"^print\(.*\)  # (.+)$", text, re.MULTILINE)
    printed = out.getvalue().splitlines()
    if shown:
        assert len(printed) == len(shown), (printed, shown)
    for line, comment in zip(printed, shown):
        begin = comment.removesuffix("...")
        assert line.startswith(begin) if begin != comment else line == comment, (line, comment)


def shows(page, text, connection):
    """Runs a snippet in the state that its page describes before it. A snippet that waits is first run in vain."""
    r = redis.Redis.from_url(URL, decode_responses=True)
    r.flushall()
    r.set("stock:42", 10)
    _, lock = r.execute_command("LOCK.ACQUIRE", "lock:report", "worker-7:3f2a", "PX", 60000)
    names = dict(job="job-4711", owner="worker-7:3f2a", order=77, token=lock["token"], TooManyRequests=TooManyRequests)
    for name in ("acquire", "renew", "release"):
        names[name] = r.register_script((LUA / f"lease_gate_{name}.lua").read_text())
    exec(compile(connection, OVERVIEW, "exec"), names)
    program = compile(text, page, "exec")
    waits = re.search(r'"([A-Z.]+)", "([^"]+)".*"BLOCK"', text)
    if waits:
        command, key = waits.groups()
        r.execute_command("LOCK.BREAK", key)
        r.execute_command("LOCK.ACQUIRE", key, "somebody else", "PX", 60000)
        before = calls(r, command)
        exec(program, names)
        assert names["granted"] == 0 and names["fields"]["reason"] == "timeout", names["fields"]
        assert calls(r, command) == before + 1, "it has called again"
        r.execute_command("LOCK.BREAK", key)
    prints_as_shown(program, text, names)
    for outcome in ("granted", "outcome"):
        assert names.get(outcome, 1) == 1, outcome
    assert isinstance(names.get("fields", {}), dict), names["fields"]


def database(text):
    """Runs SQL statements, each with the names that it uses."""
    store = sqlite3.connect(":memory:", isolation_level=None)
    store.execute("CREATE TABLE stock (item, units)")
    store.execute("CREATE TABLE segment (item, number, units, added, UNIQUE (item, number))")
    store.execute("INSERT INTO stock VALUES (9, 100)")
    for statement in re.sub("--.*", "", text).split(";")[:-1]:
        store.execute(statement, dict(item=9, segment=1, units=40))
    assert store.execute("SELECT stock.units, segment.units, added FROM stock, segment").fetchall() == [(60, 40, 1)]


def all_snippets():
    python = list(snippets("python"))
    connection = next(text for page, _, text in python if page == OVERVIEW)
    for page, number, text in python:
        check = lambda page=page, text=text: shows(page, text, connection)
        check.__name__ = f"{page} {number}"
        yield check
    for page, number, text in snippets("sql"):
        check = lambda text=text: database(text)
        check.__name__ = f"{page} {number}"
        yield check


run("pages", all_snippets())
