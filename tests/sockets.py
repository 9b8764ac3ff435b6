"""The network addresses that a process, with all its libraries, hands to the kernel.

The process runs under a seccomp filter that holds each system call of SYSCALLS, in every thread and child process, until
this side has looked at its address: Python's audit hooks would miss calls of C libraries, and a network namespace would
only show that nothing was reached. Needs no rights. (The file is its own launcher: it installs the filter and becomes the
command.)
"""

from __future__ import annotations

import array
import ctypes
import fcntl
import os
import platform
import select
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
SYSCALLS = {
    "x86_64": {"socket": 41, "connect": 42, "sendto": 44, "sendmsg": 46, "sendmmsg": 307},
    "aarch64": {"socket": 198, "connect": 203, "sendto": 206, "sendmsg": 211, "sendmmsg": 269},
}
SECCOMP = {"x86_64": 317, "aarch64": 277}
PR_SET_NO_NEW_PRIVS = 38
SET_MODE_FILTER, NEW_LISTENER = 1, 8
ALLOW, USER_NOTIF = 0x7FFF0000, 0x7FC00000
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
RECV, SEND, CONTINUE = 0xC0502100, 0xC0182101, 1
NOTE = struct.Struct("QIIiIQ6Q")
"""struct seccomp_notif: id, pid, flags, number, architecture, instruction pointer, six arguments."""


@dataclass(slots=True)
class Traffic:
    """Traffic of a process: exit code and output, the internet sockets it made, and the (host, port) pairs it named."""

    code: int = 0
    out: str = ""
    err: str = ""
    sockets: int = 0
    addresses: set[tuple[str, int]] = field(default_factory=set)


def traffic(command: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Traffic:
    """Run a command and watch it.

    :raises OSError: if this system's kernel or container does not let a process be watched.
    """
    ours, theirs = socket.socketpair()
    seen = Traffic()
    with ours:
        with theirs:
            launcher = [sys.executable, "-I", __file__, str(theirs.fileno()), *command]
            process = subprocess.Popen(
                launcher,
                cwd=cwd,
                env=env,
                pass_fds=[theirs.fileno()],
                text=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        try:
            answer, fds, _, _ = socket.recv_fds(ours, 100, 1)
            if not fds:
                raise OSError(answer.decode() or "the launcher ended")
            watcher = threading.Thread(target=_watch, args=(fds[0], seen), name="sockets")
            watcher.start()
            seen.out, seen.err = process.communicate()
            watcher.join()
        finally:
            process.kill()
            process.communicate()
    seen.code = process.returncode
    return seen


def _watch(listener: int, seen: Traffic) -> None:
    """Answer the kernel until the last watched process has ended."""
    numbers = {number: name for name, number in SYSCALLS[platform.machine()].items()}
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    try:
        while not poll.poll()[0][1] & select.POLLHUP:
            note = array.array("B", bytes(NOTE.size))
            try:
                fcntl.ioctl(listener, RECV, note)
                key, pid, _, number, _, _, *args = NOTE.unpack(note)
                _record(numbers[number], pid, args, seen)
                fcntl.ioctl(listener, SEND, struct.pack("QqiI", key, 0, 0, CONTINUE))
            except FileNotFoundError:
                continue  # the thread was killed while it waited for us
    finally:
        os.close(listener)


def _record(name: str, pid: int, args: Sequence[int], seen: Traffic) -> None:
    if name == "socket":
        seen.sockets += args[0] in (socket.AF_INET, socket.AF_INET6)
        return
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        if name in ("sendmsg", "sendmmsg"):
            memory.seek(args[1])
            where = struct.unpack("Q", memory.read(8))[0]
        else:
            where = args[1 if name == "connect" else 4]
        if not where:
            return  # on a connected socket
        memory.seek(where)
        raw = memory.read(28)
    family, port = struct.unpack("=H", raw[:2])[0], struct.unpack(">H", raw[2:4])[0]
    if family == socket.AF_INET:
        seen.addresses.add((socket.inet_ntop(family, raw[4:8]), port))
    elif family == socket.AF_INET6:
        seen.addresses.add((socket.inet_ntop(family, raw[8:24]), port))


def _filter(control: int) -> bytes:
    """Hold every call of SYSCALLS except those on `control`, over which the listener goes to the other side."""
    machine = platform.machine()
    held = SYSCALLS[machine]
    code = [(LOAD, 0, 0, 4), (EQUAL, 1, 0, ARCH[machine]), (RETURN, 0, 0, ALLOW), (LOAD, 0, 0, 0)]
    others = [number for name, number in held.items() if name != "sendmsg"]
    # Jumps count the lines to pass over: `sendmsg` goes on to its file descriptor, the others straight to the last line.
    for k, number in enumerate(others):
        code.append((EQUAL, len(others) - k + 4, 0, number))
    code += [
        (EQUAL, 1, 0, held["sendmsg"]),
        (RETURN, 0, 0, ALLOW),
        (LOAD, 0, 0, 16),
        (EQUAL, 0, 1, control),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, USER_NOTIF),
    ]
    return b"".join(struct.pack("HBBI", *line) for line in code)


def _become(control: int, command: list[str]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    with socket.socket(fileno=control) as channel:
        program = _filter(control)
        buffer = ctypes.create_string_buffer(program)
        header = struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(buffer))
        libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        listener = libc.syscall(SECCOMP[platform.machine()], SET_MODE_FILTER, NEW_LISTENER, header)
        if listener < 0:
            channel.send(os.strerror(ctypes.get_errno()).encode())
            sys.exit(1)
        socket.send_fds(channel, [b"ready"], [listener])
        os.close(listener)
    os.execvp(command[0], command)


if __name__ == "__main__":
    _become(int(sys.argv[1]), sys.argv[2:])
