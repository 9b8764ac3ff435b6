"""The flags of all commands. Nothing heavy is imported: `--help` answers at once."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

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


class _Parser(argparse.ArgumentParser):
    """Says in one line what was wrong; the usage of `run` alone would fill the screen before it."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self._given = list(sys.argv[1:] if args is None else args)
        return super().parse_known_args(args, namespace)

    def print_help(self, file: Any = None) -> None:
        say(self.format_help().rstrip())

    def error(self, message: str) -> NoReturn:
        # Arguments are quoted in it: those that are known as a whole are hidden as a whole.
        for given in (part for text in self._given for part in (text, text.partition("=")[2])):
            if redact_url(given) != given:
                message = message.replace(repr(given), repr(redact_url(given))).replace(given, redact_url(given))
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
    _run(_command(commands, "run", "run on camera streams, video files and pictures", SOURCES + "\n\n" + EXIT_CODES))
    demo = _command(commands, "demo", "run the shipped sample and show where to look", EXIT_CODES)
    demo.add_argument("--folder", default="runs/demo", help="where the results go (runs/demo)")
    _model_flags(demo)
    _talk_flags(demo)
    doctor = _command(commands, "doctor", "say what this machine can do, and whether sources answer", EXIT_CODES)
    doctor.add_argument("sources", nargs="*", metavar="SOURCE", default=argparse.SUPPRESS, help="sources to reach")
    _camera_flags(doctor)
    _bench(_command(commands, "bench", "measure what this machine reaches, and print it beside its limit", EXIT_CODES))
    _serve(_command(commands, "serve", "answer classification requests over HTTP", EXIT_CODES))
    _classify(_command(commands, "classify", "print the labels of pictures", CLASSIFY_CODES))
    about = "make a model's int8 form from frames of the sources"
    calibrate = _command(commands, "calibrate", about, SOURCES + "\n\n" + EXIT_CODES)
    calibrate.add_argument("sources", nargs="*", metavar="SOURCE", **_absent(help="what the model will see; see below"))
    calibrate.add_argument("--force", action="store_true", help="keep it also if it is too unlike fp32")
    _names_and_fit(calibrate.add_argument_group("model"))
    _camera_flags(calibrate)
    _talk_flags(calibrate)
    return top


BENCHES = ("files", "streams", "concurrency")


def _bench(bench: argparse.ArgumentParser) -> None:
    which = bench.add_subparsers(dest="bench", required=True, metavar="{files,streams,concurrency}")
    files = _command(which, "files", "a clip end to end and its share of the limit; `bench CLIP` means this", EXIT_CODES)
    files.add_argument("sources", nargs="*", metavar="SOURCE", help="clips; default: the shipped sample")
    files.add_argument("--frames", type=int, default=500, help="frames at most (500)")
    files.add_argument("-o", "--output", **_absent(metavar="PATH", help="annotated video, or a folder for several clips"))
    streams = _command(which, "streams", "how many live streams are served within the budget", EXIT_CODES)
    streams.add_argument(
        "--source",
        metavar="SOURCE",
        default=None,
        help="played many times: a clip (as a camera sends it), synthetic:WxH@FPS or rtsp://; default: the shipped sample",
    )
    streams.add_argument("--streams", type=int, metavar="N", help="measure with N streams, search nothing")
    streams.add_argument("--seconds", type=float, default=5.0, help="of each trial (5)")
    streams.add_argument("--budget-ms", **_absent(type=float, metavar="MS", help="latency promise (50)"))
    streams.add_argument("--max-batch", **_absent(type=int, metavar="N", help="largest batch (32)"))
    _camera_flags(streams)
    paying = _command(which, "concurrency", "what batching, overlapping and warming up pay here", EXIT_CODES)
    paying.add_argument("--seconds", type=float, default=2.0, help="of each measurement (2)")
    paying.add_argument("--max-batch", **_absent(type=int, metavar="N", help="largest batch (32)"))
    for each in (files, streams, paying):
        each.add_argument("--json", action="store_true", help="print JSON instead of a table")
        _model_flags(each)
        _talk_flags(each)


def _serve(serve: argparse.ArgumentParser) -> None:
    number = {"type": int, "metavar": "N"}
    where = serve.add_argument_group("where, and for whom")
    where.add_argument("--host", **_absent(metavar="ADDRESS", help="(127.0.0.1: this machine only)"))
    where.add_argument("--port", **_absent(**number, help="(8000); 0 takes a free one"))
    where.add_argument("--token-env", **_absent(metavar="NAME", help="the variable that holds the token requests must show"))
    where.add_argument("--no-auth", **_absent(action="store_true", help="other machines may ask without a token"))
    how = serve.add_argument_group("how requests are worked on")
    how.add_argument("--workers", **_absent(**number, help="worker processes (one for two cores, up to 4; 1 on a GPU)"))
    how.add_argument("--batching", **_absent(choices=("dynamic", "fixed"), help="by deadlines, or full batches (dynamic)"))
    how.add_argument("--max-batch", **_absent(**number, help="largest batch (16)"))
    how.add_argument("--max-wait-ms", **_absent(type=float, metavar="MS", help="wait at most so long for a full batch (5)"))
    how.add_argument("--queue-depth", **_absent(**number, help="batches that may wait (3 for each worker)"))
    how.add_argument("--request-timeout", **_absent(type=float, metavar="S", help="deadline where a request has none (5)"))
    how.add_argument("--max-upload-mb", **_absent(type=float, metavar="MB", help="largest body (16)"))
    _model_flags(serve)
    _talk_flags(serve)


def _classify(classify: argparse.ArgumentParser) -> None:
    classify.add_argument("pictures", nargs="+", metavar="PICTURE", help="a JPEG, PNG, WebP or GIF file; - is standard input")
    classify.add_argument("--url", **_absent(metavar="URL", help="ask this service; without it the model is loaded here"))
    classify.add_argument("--token-env", **_absent(metavar="NAME", help="the variable that holds the service's token"))
    classify.add_argument("--json", **_absent(action="store_true", help="print one JSON object a picture"))
    _model_flags(classify)
    _talk_flags(classify)


def _command(commands: Any, name: str, help: str, epilog: str) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = commands.add_parser(
        name,
        help=help,
        description=help[0].upper() + help[1:] + ".",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return made


def _absent(**options: Any) -> dict[str, Any]:
    return {"default": argparse.SUPPRESS, **options}


def _run(run: argparse.ArgumentParser) -> None:
    run.add_argument("sources", nargs="*", metavar="SOURCE", **_absent(help="see below"))
    run.add_argument("--config", metavar="FILE", help="YAML with the same names; flags win over it")
    _model_flags(run)
    pace = run.add_argument_group("which frames, and when")
    number = {"type": int, "metavar": "N"}
    pace.add_argument("--jobs", **_absent(**number, help="files of a folder or glob worked on at once (the cores)"))
    pace.add_argument("--workers", **_absent(**number, help="run the model in N processes (in this one)"))
    pace.add_argument("--budget-ms", **_absent(type=float, metavar="MS", help="latency promise (50)"))
    pace.add_argument("--max-batch", **_absent(**number, help="largest batch (32)"))
    pace.add_argument("--max-wait-ms", **_absent(type=float, metavar="MS", help="wait at most so long for a full batch"))
    pace.add_argument("--realtime", **_absent(action="store_true", help="play files as cameras, by their times"))
    pace.add_argument("--loop", **_absent(action="store_true", help="play files again and again"))
    pace.add_argument("--max-frames", **_absent(**number, help="end each stream after N captured frames"))
    pace.add_argument("--stride", **_absent(**number, help="work on every N-th frame (1)"))
    pace.add_argument("--max-fps", **_absent(type=float, metavar="F", help="work on at most F frames a second"))
    pace.add_argument("--deinterlace", **_absent(action="store_true", help="take the combs out of interlaced pictures"))
    out = run.add_argument_group("where results go")
    out.add_argument("--show", **_absent(action=argparse.BooleanOptionalAction, help="a window; q ends, space pauses a file"))
    out.add_argument("-o", "--output", **_absent(metavar="PATH", help="annotated video, or a folder for several streams"))
    out.add_argument("--jsonl", **_absent(metavar="PATH", help="one JSON object per captured frame; - is standard output"))
    out.add_argument("--report", **_absent(metavar="PATH", help="the final report as JSON; - is standard output"))
    live = _camera_flags(run)
    live.add_argument("--open-timeout", **_absent(type=float, metavar="S", help="seconds to open a source (10)"))
    live.add_argument("--read-timeout", **_absent(type=float, metavar="S", help="seconds without a picture (5)"))
    live.add_argument("--reconnect", **_absent(action=argparse.BooleanOptionalAction, help="open a lost camera again (on)"))
    trusted = "the cameras' clocks are set by one source of time with this machine's: show ages by them"
    live.add_argument("--camera-clock-trusted", **_absent(action="store_true", help=trusted))
    _talk_flags(run)


def _camera_flags(command: argparse.ArgumentParser) -> Any:
    live = command.add_argument_group("cameras")
    live.add_argument(
        "--rtsp-client",
        **_absent(choices=("auto", "native", "ffmpeg"), help="reader for rtsp:// (auto: native where it can)"),
    )
    live.add_argument("--rtsp-transport", **_absent(choices=("tcp", "udp"), help="(tcp)"))
    verify = {"action": argparse.BooleanOptionalAction, "help": "check the certificates of rtsps:// (on)"}
    live.add_argument("--tls-verify", **_absent(**verify))
    return live


def _model_flags(command: argparse.ArgumentParser) -> None:
    model = command.add_argument_group("model")
    _names_and_fit(model)
    model.add_argument("--labels", **_absent(metavar="FILE", help="line k, from 0, names class k"))
    model.add_argument("--topk", **_absent(type=int, metavar="N", help="labels a frame (5)"))
    model.add_argument("--device", **_absent(metavar="D", help="auto, cpu, cuda, cuda:N"))
    model.add_argument("--engine", **_absent(choices=("auto", "torch", "openvino"), help="(auto: measured)"))
    model.add_argument("--precision", **_absent(choices=("auto", "fp32", "bf16", "int8"), help="(auto: measured)"))
    threads = "of the model on the CPU, in each process (all cores)"
    model.add_argument("--threads", **_absent(type=int, metavar="N", help=threads))
    stagers = "threads that make pictures the model's input (a quarter of the cores, at least 1)"
    model.add_argument("--stagers", **_absent(type=int, metavar="N", help=stagers))
    model.add_argument("--probe-ms-per-batch", **_absent(type=float, metavar="X", help="for --model probe: time of a batch"))
    model.add_argument("--probe-ms-per-frame", **_absent(type=float, metavar="Y", help="and of each frame in it"))


def _names_and_fit(model: Any) -> None:
    model.add_argument(
        "--model",
        **_absent(metavar="NAME|PATH", help="lite0 (works offline), a torchvision name, timm:NAME, .onnx, .pt2, .pt, probe"),
    )
    model.add_argument("--fit", **_absent(choices=("crop", "squash", "pad"), help="how a frame meets the square input (crop)"))


def _talk_flags(command: argparse.ArgumentParser) -> None:
    talk = command.add_argument_group("messages")
    talk.add_argument("-v", "--verbose", **_absent(action="store_true", help="debug lines and tracebacks"))
    talk.add_argument("-q", "--quiet", **_absent(action="store_true", help="errors only"))


def parse(argv: Sequence[str] | None) -> dict[str, Any]:
    """The flags that were given, and the command's name."""
    given = list(sys.argv[1:] if argv is None else argv)
    if given[:1] == ["bench"] and (given[1:2] or [""])[0] not in (*BENCHES, "-h", "--help"):
        given.insert(1, BENCHES[0])
    return vars(parser().parse_args(given))
