"""Every tuned constant of the scheduler, with the measurement that justifies it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tuning:
    """Constants of scheduling. Times are seconds. Tests replace single ones; a run uses the defaults."""

    # Live streams.

    lane_ahead: int = 2
    """Results that a live stream's lane may have before it. With more, a frame would only age in the lane; in the scheduler a
    newer frame can still replace it. With 1, 48 streams on a simulated device of 8 + 0.5 b ms fall from a goodput of 0.956 to
    0.853; 3 changes nothing."""
    blind_s: float = 0.5
    """A live stream that has shown nothing for this long is shown a late frame."""
    after_s: float = 0.005
    """Assumed time of render and sinks until a stream has shown frames."""
    service_decay: float = 0.98
    """Decay of a stream's service count per batch (exponential, about 50 batches); the least served stream goes first. If
    only the time of the last service counts, a stream with a lucky phase gets twice the share of another for ever: 96 streams
    on a device for 53 reach a Jain's index of 0.94; with the decay 1.00."""
    wake_s: float = 0.001
    """Worst delay of a thread that sleeps until a time, with fifty others that want the interpreter."""
    grace_s: float = 0.002
    """Delay of an expected arrival before it is given up. Three simulated cameras with 2 ms of jitter on 8 + 0.5 b ms:
    p99 14 ms; 21 ms without."""
    contended: float = 1.25
    """Batches that take this many times as long as alone show that decoders want the cores of the engine. Then the device is
    not the scarce part, and a frame waits up to `linger` of the budget for a second one."""
    linger: float = 0.15
    """Share of the budget. Ten 720p cameras on 2 cores, int8, nine rounds: CPU time of a frame 7.1 ms, 7.3 without; mean
    goodput 0.97, 0.95 without; with a quarter of the budget 0.95."""
    bold_gain: float = 1.02
    """Frames are given up for a larger batch only if it serves this many times as many per second. If time is a line through
    0, no batch does. Simulated: 96 streams on a device of 8 + 0.5 b ms reach a goodput of 0.477, without larger batches 0.329;
    with a larger batch in every case 4 streams on 0.3 + 9.7 b ms fall from 0.960 to 0.883."""

    # Files.

    fill_wait_s: float = 0.25
    """Longest wait of an idle device for a file batch to fill: longer than any healthy decoder needs for one batch. A slower
    source is the bottleneck, and waiting for it gains nothing."""
    starved_s: float = 1.0
    """Beside cameras that leave no room, a file gets one frame per this time, so that it ends some day. Simulated: beside three
    cameras on 0.3 + 9.7 b ms a file gets 9 frames per second, 2 without."""
    reserve: float = 0.9
    """Share of the budget that file batches may plan with beside cameras; the rest is for decoding and the noise of a machine.
    The simulation has neither: there 0.8, 0.9 and 1.0 all keep the cameras' goodput at 1.000, and a file beside two cameras on
    0.3 + 9.7 b ms gets 30, 25 and 43 frames per second."""

    # Requests.

    arrivals_s: float = 0.5
    """Memory of the arrival rate: long enough that a burst is no rate, short enough to follow a change."""
    good: float = 1.15
    """A batch of requests is large enough if a row costs at most this many times as much as in the best batch. If time is
    nearly a line through 0, as on a CPU, a larger batch only delays the first answer."""
    headroom: float = 1.2
    """A batch of requests is large enough if batches of it would serve this many times the arrival rate: arrivals come in
    bunches."""
    overdue: float = 2.0
    """Mean gaps without an arrival after which no further request is waited for."""

    # The profile: see `Profile`.

    ratio_memory_s: float = 2.0
    """Memory of a batch's ratio. By time, not by number: after a slow moment (another program, a stopped process) nearly every
    frame is dropped as too late, and 64 batches of the few others would take half a minute."""
    ratio_window: int = 512
    """Ratios in memory at most."""
    ratios: int = 8
    """Least number of ratios that replace the idle table. With fewer, the idle table is tried again."""
    handling_s: float = 0.002
    """CPU time of a batch outside the engine: slots, locks and waking threads. Measured with files on 2 cores: a frame cost 7.8
    ms in batches of 8 and 8.6 ms in batches of 2."""
    good_enough: float = 1.03
    """A file's batch is as good as the best one if a row costs at most this many times as much: smaller batches wait less and
    hold less memory."""


DEFAULT = Tuning()
