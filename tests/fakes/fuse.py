"""
A file system behind FUSE with one endless file, ``data``, that gives so many bytes a second: what a slow object store looks like.

    with mounted(folder, bytes_per_s=200_000) as mount:   # skips the test where /dev/fuse cannot be used
        open(mount.file, "rb")
        with mount.stopped(): ...                          # the server hangs, and its readers sleep

Speaks the kernel's protocol (linux/fuse.h, version 7.31) by itself, so nothing has to be installed. Ending the server ends
every read that waits for it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import stat
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Iterator, NamedTuple

SIZE = 1 << 40
_IN, _OUT = struct.Struct("<IIQQIIIHH"), struct.Struct("<IiQ")
_ATTR = struct.Struct("<QQQQQQIIIIIIIIII")
_LOOKUP, _FORGET, _GETATTR, _OPEN, _READ, _RELEASE, _FLUSH, _INIT, _INTERRUPT, _BATCH_FORGET = 1, 2, 3, 14, 15, 18, 25, 26, 36, 42
_KEEP_S = 3600


class Mount(NamedTuple):
    file: Path
    server: "subprocess.Popen[bytes]"

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Nothing answers meanwhile. A reader that is killed then could not even end, so it goes on afterwards in any case."""
        self.server.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.server.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def mounted(folder: Path, bytes_per_s: int) -> Iterator[Mount]:
    import pytest

    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        pytest.skip("needs root and /dev/fuse: a FUSE mount")
    folder.mkdir()
    server = subprocess.Popen([sys.executable, __file__, str(folder), str(bytes_per_s)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert server.stdout is not None
        if server.stdout.readline() != b"mounted\n":
            _, why = server.communicate()
            pytest.skip("no FUSE mount can be made here: %s" % why.decode().strip().rpartition("\n")[2])
        yield Mount(folder / "data", server)
    finally:
        server.kill()  # which the kernel answers by ending every request
        server.communicate()
        ctypes.CDLL(None, use_errno=True).umount2(str(folder).encode(), 2)  # MNT_DETACH


def _attributes(node: int) -> bytes:
    mode, size = (stat.S_IFDIR | 0o755, 0) if node == 1 else (stat.S_IFREG | 0o444, SIZE)
    return _ATTR.pack(node, size, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def _answer(opcode: int, node: int, body: bytes, bytes_per_s: int) -> bytes:
    """Raises OSError with what to say instead."""
    if opcode == _INIT:
        _, _, readahead, flags = struct.unpack_from("<IIII", body)
        return struct.pack("<IIIIHHIIHHI7I", 7, 31, min(readahead, 1 << 17), 0, 16, 12, 1 << 17, 1, 32, 0, 0, *[0] * 7)
    if opcode == _LOOKUP:
        if body.rstrip(b"\0") != b"data":
            raise FileNotFoundError(2, "")
        return struct.pack("<QQQQII", 2, 0, _KEEP_S, _KEEP_S, 0, 0) + _attributes(2)
    if opcode == _GETATTR:
        return struct.pack("<QII", _KEEP_S, 0, 0) + _attributes(node)
    if opcode == _OPEN:
        return struct.pack("<QII", 0, 0, 0)
    if opcode == _READ:
        size = struct.unpack_from("<QQI", body)[2]
        time.sleep(size / bytes_per_s)
        return b"x" * int(size)
    if opcode in (_FLUSH, _RELEASE):
        return b""
    raise OSError(38, "")


def serve(folder: str, bytes_per_s: int) -> None:
    device = os.open("/dev/fuse", os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    options = ("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other" % device).encode()
    if libc.mount(b"slow", folder.encode(), b"fuse", 6, options) != 0:  # MS_NOSUID | MS_NODEV
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    print("mounted", flush=True)
    while True:
        request = os.read(device, 1 << 18)
        _, opcode, unique, node = _IN.unpack_from(request)[:4]
        if opcode in (_FORGET, _BATCH_FORGET, _INTERRUPT):
            continue
        try:
            body, error = _answer(opcode, node, request[_IN.size :], bytes_per_s), 0
        except OSError as refused:
            body, error = b"", -(refused.errno or 5)
        with contextlib.suppress(FileNotFoundError):  # the one who asked is gone
            os.write(device, _OUT.pack(_OUT.size + len(body), error, unique) + body)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
