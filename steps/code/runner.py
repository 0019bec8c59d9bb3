"""Runs one Python function for a run_code step.

    runner.py DIR ENTRYPOINT FILE SECONDS WORD   supervise: run the script, end it after SECONDS
    runner.py DIR ENTRYPOINT FILE                call ENTRYPOINT of DIR/FILE with DIR/input.json, write DIR/output.json

What a script left in sessions of their own the supervisor cannot find. After a deadline it prints WORD on standard output and
waits to be ended, with all of that, by what started it.

Python 3.9 or newer, standard library only. Exit codes of the supervisor: 124 for a script that took too long, 128+n for one
ended by signal n, else the script's own.
"""

import sys

# Files of the artifact may be named like modules of the standard library. The supervisor must not import them, so the folder
# it was started from leaves the import path before anything else is imported.
_HERE = sys.path.pop(0) if sys.path else ""

GRACE = 5.0
TICK = 0.1
TIMED_OUT = 124
PATIENCE = 10.0


def supervise(folder, entrypoint, script, limit, word):
    import os
    import signal
    import subprocess
    import time

    pending = []
    child = None

    def forward(number, _frame):
        pending.append(number)
        if child is not None:
            send(number)

    def send(number):
        try:
            os.killpg(child.pid, number)
        except (ProcessLookupError, PermissionError):
            pass

    def group_alive():
        try:
            os.killpg(child.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, forward)
    child = subprocess.Popen(
        [sys.executable, os.path.abspath(__file__), folder, entrypoint, script],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    for number in list(pending):
        send(number)

    def end(first):
        send(first)
        deadline = time.monotonic() + GRACE
        while time.monotonic() < deadline and child.poll() is None:
            time.sleep(TICK)
        send(signal.SIGKILL)
        child.wait()

    deadline = time.monotonic() + limit
    while child.poll() is None:
        if pending:
            end(pending[0])
            return 128 + pending[0]
        if time.monotonic() >= deadline:
            end(signal.SIGTERM)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.write(1, word.encode("ascii"))
            time.sleep(PATIENCE)
            return TIMED_OUT
        try:
            child.wait(timeout=min(TICK, max(0.001, deadline - time.monotonic())))
        except subprocess.TimeoutExpired:
            pass
    if group_alive() and child.returncode != 0:
        send(signal.SIGKILL)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def load(folder, script):
    import importlib.machinery
    import importlib.util
    import os
    import types

    path = os.path.join(folder, *script.split("/"))
    sys.path[:0] = [os.path.dirname(path)] if os.path.dirname(path) == folder else [os.path.dirname(path), folder]
    name = "agentenv_script"
    parts = script.split("/")[:-1]
    # A script in a folder belongs to a package made up for it, so that relative imports work whatever the folders are called.
    for depth in range(len(parts)):
        package = types.ModuleType(name)
        package.__path__ = [os.path.join(folder, *parts[: depth + 1])]
        package.__package__ = name
        package.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
        package.__spec__.submodule_search_locations = package.__path__
        sys.modules[name] = package
        name += ".part%d" % depth if depth < len(parts) - 1 else ".script"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def fail(error):
    """Prints the script's own part of a traceback and ends."""
    import traceback

    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename in (__file__, "<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>"):
        frame = frame.tb_next
    traceback.print_exception(type(error), error, frame)
    sys.exit(1)


def call(folder, entrypoint, script):
    try:
        module = load(folder, script)
    except Exception as error:
        fail(error)

    import json
    import os

    with open(os.path.join(folder, "input.json"), encoding="utf-8") as f:
        data = json.load(f)
    function = getattr(module, entrypoint, None)
    if function is None:
        raise SystemExit("%s has no function named %r" % (script, entrypoint))
    try:
        result = function(data)
    except Exception as error:
        fail(error)
    try:
        text = json.dumps(result, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        sys.exit("what %s returned is not JSON: %s: %s" % (entrypoint, type(error).__name__, error))
    target = os.path.join(folder, "output.json")
    with open(target + ".part", "wb") as f:
        f.write(text.encode("ascii"))
    os.replace(target + ".part", target)


if __name__ == "__main__":
    if len(sys.argv) == 6:
        sys.exit(supervise(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]), sys.argv[5]))
    call(sys.argv[1], sys.argv[2], sys.argv[3])
