"""Servers to test against: a real RTSP server in a process of its own (here), cameras that stamp their pictures (`clock`),
and peers that misbehave (`peers`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from tests.servers.process import ServerProcess


@dataclass(frozen=True, slots=True)
class Play:
    """A file played for ever at its own rate, not encoded again: H.264 or H.265, and AAC unless `sound` is False.

    drop: the share of RTP packets that get lost, 0-1. other: a file that is the same but for the size of its pictures, for
    `RtspServer.switch`. always_on: the camera does not wait for a client to begin.
    """

    path: Path
    sound: bool = True
    drop: float = 0.0
    other: Path | None = None
    always_on: bool = False


@dataclass(frozen=True, slots=True)
class PatternSpec:
    """A moving test picture in H.264. `line` replaces all of it: GStreamer elements up to one with name=pay0."""

    width: int = 320
    height: int = 240
    rate: int = 25
    gop: int = 25
    line: str | None = None

    def launch(self) -> str:
        """The elements in GStreamer's notation."""
        return self.line or (
            f"videotestsrc is-live=true pattern=ball ! video/x-raw,format=I420,width={self.width},height={self.height},"
            f"framerate={self.rate}/1 ! x264enc tune=zerolatency speed-preset=ultrafast key-int-max={self.gop} "
            "! rtph264pay config-interval=-1 name=pay0 pt=96"
        )


class RtspServer(ServerProcess):
    """GStreamer's RTSP server on 127.0.0.1, one mount per name; TCP and UDP, shared by all clients.

    With a user, every request must carry user and password, by the one method that `auth` names.
    """

    def __init__(
        self,
        mounts: Mapping[str, Path | Play | PatternSpec],
        *,
        user: str | None = None,
        password: str | None = None,
        auth: Literal["basic", "digest"] = "digest",
        port: int = 0,
    ) -> None:
        self._user, self._password = user, password
        lines = {name: _order(mount) for name, mount in mounts.items()}
        super().__init__("rtsp.py", {"user": user, "password": password, "auth": auth, "mounts": lines}, port=port)

    def freeze_pictures(self, name: str) -> None:
        """No more pictures from this mount; its sound goes on, and the server answers."""
        self.tell(f"freeze {name}")

    def thaw_pictures(self, name: str) -> None:
        """Pictures again, from the clip's next key picture on."""
        self.tell(f"thaw {name}")

    def switch(self, name: str) -> None:
        """From the next key picture on, the pictures of the other file, and with the next call those of the first again."""
        self.tell(f"switch {name}")

    def restart_clock(self, name: str) -> None:
        """Timestamps, sequence numbers and SSRCs begin anew, within the sessions that are open."""
        self.tell(f"clock {name}")

    def url(self, name: str, *, credentials: bool = True, password: str | None = None) -> str:
        """Where the mount plays, with user and password (percent-encoded); `password` replaces the right one."""
        who = ""
        if credentials and self._user is not None:
            who = f"{quote(self._user, safe='')}:{quote(password or self._password or '', safe='')}@"
        return f"rtsp://{who}127.0.0.1:{self.port}/{name}"


def _order(mount: Path | Play | PatternSpec) -> dict[str, object]:
    if isinstance(mount, PatternSpec):
        return {"launch": mount.launch()}
    play = mount if isinstance(mount, Play) else Play(mount)
    other = None if play.other is None else str(play.other)
    return {"path": str(play.path), "other": other, "sound": play.sound, "drop": play.drop, "always_on": play.always_on}
