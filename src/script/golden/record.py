#!/usr/bin/env python3
"""Records the replies of a real Redis to the scripts of the transcripts in this folder.

Usage: record.py PORT [FILE...]   (a throw-away redis-server; it is flushed, and restarted by hand if a script kills it)

A transcript is a sequence of cases, each separated by an empty line:

    # a remark
    > the script, line
    > by line
    2 the RESP2 reply, escaped
    3 the RESP3 reply, if it differs
    ! why Tidegate's reply differs (kept), followed by
    =2 its reply (kept)
    =3 ...
    ?  why the reply is not compared (kept)
"""
import glob, os, socket, sys


class Client:
    def __init__(self, port, resp):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=5)
        self.buffer = b""
        if resp == 3:
            self.command("HELLO", "3")

    def fill(self):
        more = self.socket.recv(1 << 16)
        if not more:
            raise EOFError
        self.buffer += more

    def read(self):
        while b"\r\n" not in self.buffer:
            self.fill()
        line, self.buffer = self.buffer.split(b"\r\n", 1)
        kind, line = line[:1], line + b"\r\n"
        if kind in b"$=":
            n = int(line[1:])
            if n < 0:
                return line
            while len(self.buffer) < n + 2:
                self.fill()
            bulk, self.buffer = self.buffer[: n + 2], self.buffer[n + 2 :]
            return line + bulk
        if kind in b"*~%":
            n = int(line[1:]) * (2 if kind == b"%" else 1)
            return line + b"".join(self.read() for _ in range(n))
        return line

    def command(self, *args):
        out = b"*%d\r\n" % len(args)
        for arg in args:
            arg = arg if isinstance(arg, bytes) else arg.encode()
            out += b"$%d\r\n%s\r\n" % (len(arg), arg)
        self.socket.sendall(out)
        return self.read()


def escape(data):
    names = {9: "\\t", 10: "\\n", 13: "\\r", 34: '\\"', 39: "\\'", 92: "\\\\"}
    return "".join(names.get(b) or (chr(b) if 32 <= b < 127 else "\\x%02x" % b) for b in data)


def answer(port, resp, script):
    client = Client(port, resp)
    client.command("FLUSHALL")
    client.command("LPUSH", "list", "a")
    try:
        return escape(client.command("EVAL", script, "2", "k1", "k2", "a1", "2"))
    except EOFError:
        sys.exit("the server died of: " + script)


def record(port, path):
    cases = open(path).read().strip("\n").split("\n\n")
    out = []
    for case in cases:
        lines = case.split("\n")
        script = "\n".join(line[2:] for line in lines if line[0] == ">")
        kept = [line for line in lines if line[0] in "#>"]
        tail = [line for line in lines if line[0] in "!=?"]
        if script and not any(line[0] == "?" for line in tail):
            two, three = answer(port, 2, script), answer(port, 3, script)
            kept.append("2 " + two)
            if three != two:
                kept.append("3 " + three)
        out.append("\n".join(kept + tail))
    open(path, "w").write("\n\n".join(out) + "\n")


if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    for path in sys.argv[2:] or sorted(glob.glob(here + "/*.txt")):
        record(int(sys.argv[1]), path)
