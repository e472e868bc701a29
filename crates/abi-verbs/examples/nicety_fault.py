"""Faults for tests in Python: a fixture of pytest that starts programs on a device of faults.

In conftest.py:  pytest_plugins = ["nicety_fault"]

    def test_program_reports_a_failed_write(faulty):
        program = faulty("./put", rules="on=write nth=3 status=RETRY_EXC_ERR")
        assert program.wait() != 0

    def test_program_survives_a_lost_port(faulty):
        program = faulty("./server")
        program.fault("on=time event=PORT_ERR")
        assert "fired 1 times" in program.fault("list")

docs/guides/faults.md has the rules. SPDX-License-Identifier: MIT OR Apache-2.0
"""

import os
import socket
import subprocess
import time

try:
    import pytest
except ImportError:
    pytest = None


def fault(pid, rule, patience_s=10.0):
    """Sends a rule, `list` or `clear` to a process; returns its answer. Waits until the process has opened its device.

    Raises ValueError for a wrong rule, and ConnectionError for a process without a device of faults.
    """
    name = f"\0nicety/{os.geteuid()}/{pid}"
    deadline = time.monotonic() + patience_s
    while True:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
            try:
                stream.connect(name)
            except ConnectionRefusedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
                continue
            stream.sendall(rule.encode() + b"\n")
            with stream.makefile("r") as answer:
                first, text = answer.readline().strip(), answer.read()
        if first != "ok":
            raise ValueError(text.strip() or f"process {pid} gives no answer")
        return text


class FaultyProgram(subprocess.Popen):
    """A program on a device of faults."""

    def fault(self, rule):
        """Sends it a rule, `list` or `clear`; returns the answer."""
        return fault(self.pid, rule)


def toml(rule):
    """A rule of one line as a table of a file of rules."""
    pairs = [pair.split("=", 1) for pair in rule.split()]
    return "[[fault]]\n" + "".join(f'{key} = "{value}"\n' for key, value in pairs)


def start(folder, *command, rules=(), device="shm", nicety="nicety", **options):
    """Starts a program with rules, one or several, by `nicety run`."""
    rules = [rules] if isinstance(rules, str) else rules
    file = os.path.join(folder, "faults.toml")
    with open(file, "w", encoding="utf-8") as to:
        to.write("".join(toml(rule) for rule in rules))
    line = [nicety, "run", "--device", device, "--faults", file, "--", *command]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    return FaultyProgram(line, **options)


if pytest:

    @pytest.fixture
    def faulty(tmp_path):
        """Starts programs on devices of faults, and ends those that still run after the test."""
        programs = []

        def begin(*command, **options):
            folder = tmp_path / f"faults-{len(programs)}"
            folder.mkdir()
            programs.append(start(folder, *command, **options))
            return programs[-1]

        yield begin
        for program in programs:
            program.kill()
            program.communicate()
