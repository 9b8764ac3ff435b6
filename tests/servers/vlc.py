"""VLC as an RTSP server: another real one, with habits of its own.

It sends over UDP only (461 for TCP), begins between two key pictures, and says its time for the first time after 7 s.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import threading
from pathlib import Path

START_S = 30.0
NOBODY = 65534
LISTENS = "RTSP: adding"
"""Words of its log when the stream can be asked for."""


class Vlc:
    """Plays a clip once at its own rate on 127.0.0.1, without its sound, as `cam`; ends with it, or with the `with`.

    Played for ever it closes its server between two rounds.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._listens = threading.Event()

    def __enter__(self) -> Vlc:
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            self.port = one.getsockname()[1]
        # It refuses to run as root, and a test's folder is closed to others.
        self._folder = tempfile.TemporaryDirectory()
        os.chmod(self._folder.name, 0o755)
        clip = shutil.copy(self._path, self._folder.name)
        os.chmod(clip, 0o644)
        who = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
        command = ["vlc", "-I", "dummy", "-vv", "--no-audio", clip, "vlc://quit", "--sout", f"#rtp{{sdp={self.url}}}"]
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={**os.environ, "HOME": self._folder.name},
            **who,
        )
        self._reader = threading.Thread(target=self._read, name="vlc")
        self._reader.start()
        if not self._listens.wait(START_S):
            self.__exit__()
            raise RuntimeError("VLC did not start")
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._reader.join()
        self._folder.cleanup()

    @property
    def url(self) -> str:
        return f"rtsp://127.0.0.1:{self.port}/cam"

    def kill(self) -> None:
        """End it as a power cut does. Killing twice is fine."""
        self._child.kill()
        self._child.wait()

    def _read(self) -> None:
        """Read its log to the end, so that it never waits for a reader."""
        assert self._child.stderr is not None
        with self._child.stderr as lines:
            for line in lines:
                if LISTENS in line:
                    self._listens.set()
