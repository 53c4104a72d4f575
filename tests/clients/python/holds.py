"""Runs the functions of a program, and reports each that holds."""

import os
import sys
import traceback

PORT = int(os.environ["PORT"])
URL = f"redis://127.0.0.1:{PORT}"


def run(program, checks):
    failed = False
    for check in checks:
        name = f"{program}: {check.__name__.replace('_', ' ')}"
        try:
            check()
            print("ok", name, flush=True)
        except Exception:
            failed = True
            print("FAILED", name, flush=True)
            traceback.print_exc()
    sys.exit(failed)


def fails_with(text, call):
    """Asserts that the call raises an error whose message begins with this text."""
    try:
        got = call()
    except Exception as error:
        assert str(error).startswith(text), f"{error!r} does not begin with {text!r}"
        return
    raise AssertionError(f"expected an error that begins with {text!r}, got {got!r}")
