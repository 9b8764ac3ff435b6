"""The parser of all commands. Nothing heavy is imported, so that `--help` answers at once."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from app.command_options import (
    BenchOptions,
    CalibrateOptions,
    ClassifyOptions,
    ConcurrencyOptions,
    DemoOptions,
    FilesOptions,
    StreamsOptions,
)
from app.config import BENCHES, Settings
from app.options import add_options
from app.serve.serve_options import ServeOptions
from app.terminal.stdio import say
from pipelines.redact import printable, redact_url

EXIT_CODES = """exit codes:
  0    done, or quit with q
  1    a source, an output or a frame failed; the others were finished
  2    the command was wrong, or nothing could start
  129  stopped by the end of its terminal (SIGHUP), outputs finished
  130  stopped by Ctrl-C (SIGINT), outputs finished
  143  stopped by SIGTERM, outputs finished; a second signal ends at once"""

CLASSIFY_CODES = """exit codes:
  0    done
  1    a picture could not be classified; the others were
  2    the command was wrong, or nothing could be classified
  130  stopped by Ctrl-C (SIGINT)
  143  stopped by SIGTERM"""

SOURCES = """a SOURCE is a file, a quoted glob ('*.mp4'), a folder, rtsp(s)://, http(s)://, tcp://, udp://, rtmp://,
srt:// where FFmpeg has it (see doctor), a device number or /dev/videoN, a list of sources (.streams or .txt, one a line),
or synthetic:WxH@FPS"""

WHICH = tuple(name.partition(" ")[2] for name in BENCHES)
"""The benches: files, streams, concurrency."""


class _Parser(argparse.ArgumentParser):
    """Reports a wrong command in one line; the usage of `run` alone would fill the screen before it."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self._given = list(sys.argv[1:] if args is None else args)
        return super().parse_known_args(args, namespace)

    def print_help(self, file: Any = None) -> None:
        say(self.format_help().rstrip())

    def error(self, message: str) -> NoReturn:
        # Arguments are quoted in the message: a known argument is redacted as a whole.
        for given in (part for text in self._given for part in (text, text.partition("=")[2])):
            if redact_url(given) != given:
                message = message.replace(repr(given), repr(redact_url(given))).replace(given, redact_url(given))
        if named := next((text for text in self._given if text.startswith("-") and Path(text).exists()), None):
            message += f"; the file {named} is given as ./{named}"
        self.exit(2, f"{self.prog}: {printable(message)}; see {self.prog} --help\n")


class _Version(argparse.Action):
    """Looks the version up only when it is asked for: the look-up costs more than `--help` may."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help=help, default=argparse.SUPPRESS)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib.metadata import version

        say(f"watchline {version('watchline')}")
        parser.exit()


def parser() -> argparse.ArgumentParser:
    """All commands. Flags that were not given are absent from the result, so that a config file can give them."""
    top = _Parser(
        prog="watchline",
        description="Watch camera streams and video files, say what is in every frame, and measure the latency.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action=_Version, help="print the version and exit")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = _command(commands, "run", "run on camera streams, video files and pictures", SOURCES + "\n\n" + EXIT_CODES)
    _sources(run, "see below")
    add_options(run, "run", Settings)
    demo = _command(commands, "demo", "run the shipped sample and show where to look", EXIT_CODES)
    add_options(demo, "demo", DemoOptions, Settings)
    doctor = _command(commands, "doctor", "say what this machine can do, and whether sources answer", EXIT_CODES)
    _sources(doctor, "sources to reach")
    add_options(doctor, "doctor", Settings)
    _bench(_command(commands, "bench", "measure what this machine reaches, and print it beside its limit", EXIT_CODES))
    serve = _command(commands, "serve", "answer classification requests over HTTP", EXIT_CODES)
    add_options(serve, "serve", ServeOptions, Settings)
    classify = _command(commands, "classify", "print the labels of pictures", CLASSIFY_CODES)
    classify.add_argument("pictures", nargs="+", metavar="PICTURE", help="a JPEG, PNG, WebP or GIF file; - is standard input")
    add_options(classify, "classify", ClassifyOptions, Settings)
    about = "make a model's int8 form from frames of the sources"
    calibrate = _command(commands, "calibrate", about, SOURCES + "\n\n" + EXIT_CODES)
    _sources(calibrate, "what the model will see; see below")
    add_options(calibrate, "calibrate", CalibrateOptions, Settings)
    return top


def _command(commands: Any, name: str, help: str, epilog: str) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = commands.add_parser(
        name,
        help=help,
        description=help[0].upper() + help[1:] + ".",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return made


def _sources(command: argparse.ArgumentParser, help: str) -> None:
    command.add_argument("sources", nargs="*", metavar="SOURCE", default=argparse.SUPPRESS, help=help)


def _bench(bench: argparse.ArgumentParser) -> None:
    which = bench.add_subparsers(dest="bench", required=True, metavar="{files,streams,concurrency}")
    files = _command(which, "files", "a clip end to end and its share of the limit; `bench CLIP` means this", EXIT_CODES)
    _sources(files, "clips (the shipped sample)")
    add_options(files, "bench files", FilesOptions, BenchOptions, Settings)
    streams = _command(which, "streams", "how many live streams are served within the budget", EXIT_CODES)
    add_options(streams, "bench streams", StreamsOptions, BenchOptions, Settings)
    paying = _command(which, "concurrency", "what batching, overlapping and warming up pay here", EXIT_CODES)
    add_options(paying, "bench concurrency", ConcurrencyOptions, BenchOptions, Settings)


def parse(argv: Sequence[str] | None) -> dict[str, Any]:
    """The given flags, and the command's name."""
    given = list(sys.argv[1:] if argv is None else argv)
    if given[:1] == ["bench"] and (given[1:2] or [""])[0] not in (*WHICH, "-h", "--help"):
        given.insert(1, WHICH[0])
    return vars(parser().parse_args(given))
