"""Classifier: decodes the pictures of a request, submits them to the predictor, and collects the outcomes.

    event loop          admit -> one ticket per picture                                        outcome -> answer
    decode:N                        look at the size -> decode -> predictor.submit()
    predictor's threads                                             batches -> future -------^

A full queue refuses a request before any work on it: pictures that wait for decoding count as waiting, so that a refused
request costs no more than its body. A ticket ends once, by the first of these events: the predictor gives a prediction or an
error, the deadline passes, the client closes the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Protocol

import cv2
import numpy as np

from app.http.problems import RETRY_S
from app.serve.memory_budget import Reservation
from app.serve.uploads import Upload
from pipelines.errors import Dropped, Refused
from pipelines.frame import Frame, Picture, Prediction, Region, StreamInfo, Trace
from pipelines.sources.files.encoded import EncodedPictures

QUEUE = "http"
NICE = 5
LONG_S = 10.0
"""The longest Retry-After if the deadline cannot be met."""
INFO = StreamInfo()


class RequestPredictor(Protocol):
    """The methods of the predictor and of the pool that the service needs; they document them."""

    @property
    def retry_s(self) -> float: ...
    def open_requests(self, name: str, *, capacity: int) -> None: ...
    def submit(self, frame: Frame, deadline_s: float | None = None) -> Future[Prediction]: ...
    def waiting(self, name: str) -> int: ...
    def end_s(self, name: str, deadline_s: float) -> float: ...


Answered = Prediction | BaseException


class Ticket:
    """One picture of a request.

    Threads: a decoding thread sets `begun_s`, `frame` and `future`; the event loop sets `outcome`, once, and `cancelled`.
    """

    def __init__(self, upload: Upload, deadline_s: float, region: Region) -> None:
        """upload: the picture, not decoded yet; deadline_s: monotonic; region: the part of the picture to answer for."""
        self.upload = upload
        self.deadline_s = deadline_s
        self.region = region
        self.begun_s: float | None = None
        """When a decoding thread took it (monotonic)."""
        self.frame: Frame | None = None
        self.future: Future[Prediction] | None = None
        self.outcome: Answered | None = None
        self.cancelled = False
        """Whether its answer is not wanted any more."""


class PendingRequest:
    """The tickets of one request. Used in the event loop only."""

    def __init__(self, tickets: Sequence[Ticket], loop: asyncio.AbstractEventLoop) -> None:
        self.tickets = tickets
        self.done: asyncio.Future[None] = loop.create_future()
        self._left = len(tickets)

    def end(self, ticket: Ticket, outcome: Answered) -> None:
        """Set the outcome of a ticket. An outcome after the first one changes nothing."""
        if ticket.outcome is not None:
            return
        ticket.outcome = outcome
        self._left -= 1
        # After one refusal the client must send all pictures again.
        if (self._left == 0 or isinstance(outcome, Refused)) and not self.done.done():
            self.done.set_result(None)

    def cancel(self, error: BaseException) -> None:
        """End all open tickets with `error`, and cancel their futures: the predictor need not compute them any more."""
        for ticket in self.tickets:
            if ticket.outcome is None:
                ticket.cancelled = True
                self.end(ticket, error)
                if ticket.future is not None:
                    ticket.future.cancel()


class Classifier:
    """Used as `with classifier:` inside the `with` block of the predictor.

    capacity: most pictures that wait. threads: the number of decoding threads.
    """

    def __init__(
        self, predictor: RequestPredictor, capacity: int, threads: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.capacity = capacity
        self._predictor = predictor
        self._clock = clock
        self._threads = ThreadPoolExecutor(threads, "decode")
        self._thread_count = threads
        self._thread_local = threading.local()
        self._lock = threading.Lock()
        self._undecoded = 0
        """Tickets that are not submitted to the predictor yet."""
        self._decode_s = 0.0
        """Seconds to decode a picture, moving average."""
        self._numbers = itertools.count()

    def __enter__(self) -> Classifier:
        self._predictor.open_requests(QUEUE, capacity=self.capacity)
        self._warm_up()
        return self

    def __exit__(self, *error: object) -> None:
        self._threads.shutdown()

    def _warm_up(self) -> None:
        """Decode one picture in every thread: the first one takes 8 ms longer."""
        _, jpeg = cv2.imencode(".jpg", np.full((64, 64, 3), 128, np.uint8))
        barrier = threading.Barrier(self._thread_count)

        def decode_one() -> None:
            barrier.wait()
            self._pictures().decode(jpeg.tobytes())

        for future in [self._threads.submit(decode_one) for _ in range(self._thread_count)]:
            future.result()

    @property
    def waiting(self) -> int:
        """Pictures that wait, for decoding or for a batch."""
        return self._undecoded + self._predictor.waiting(QUEUE)

    def check_capacity(self, n: int, deadline_s: float) -> None:
        """Check that n more pictures can be answered. deadline_s: monotonic.

        :raises Refused: if they are too many now, or cannot be answered before the deadline.
        """
        if self.waiting + n > self.capacity:
            raise Refused(RETRY_S, "full")
        # The estimate includes pictures that wait for a decoding thread: if decoding is the slowest stage, all pictures wait
        # there. If no picture waits there, the request is tried in any case: after a slow moment the service would otherwise
        # refuse all requests, and no picture would correct the estimate.
        decoding_s = (self._undecoded + n) * self._decode_s / self._thread_count if self._undecoded else 0.0
        end_s = self._predictor.end_s(QUEUE, deadline_s) + decoding_s
        if math.isinf(end_s):
            raise Refused(self._predictor.retry_s, "no_worker")  # all workers are lost, and no replacement is ready
        if end_s > deadline_s:
            raise Refused(min(end_s - deadline_s, LONG_S), "deadline")

    def take(self, uploads: Sequence[Upload], deadline_s: float, reservation: Reservation, region: Region) -> PendingRequest:
        """Start to decode pictures, and submit them; the answers are about `region` of each. Event loop.

        :raises Refused: see `check_capacity`.
        """
        self.check_capacity(len(uploads), deadline_s)
        loop = asyncio.get_running_loop()
        request = PendingRequest([Ticket(upload, deadline_s, region) for upload in uploads], loop)
        with self._lock:
            self._undecoded += len(request.tickets)
        for ticket in request.tickets:
            self._threads.submit(self._decode, request, ticket, reservation, loop)
        return request

    # Thread decode:N.

    def _decode(
        self, request: PendingRequest, ticket: Ticket, reservation: Reservation, loop: asyncio.AbstractEventLoop
    ) -> None:
        def report(outcome: Answered) -> None:
            with contextlib.suppress(RuntimeError):  # the event loop has ended, and all clients with it
                loop.call_soon_threadsafe(request.end, ticket, outcome)

        try:
            future = self._submit(ticket, reservation)
        except BaseException as error:
            report(error)
            return
        finally:
            with self._lock:
                self._undecoded -= 1
        ticket.future = future
        if ticket.cancelled:
            future.cancel()
        future.add_done_callback(lambda f: report(_outcome(f)))

    def _submit(self, ticket: Ticket, reservation: Reservation) -> Future[Prediction]:
        ticket.begun_s = self._clock()
        if ticket.cancelled or ticket.begun_s > ticket.deadline_s:
            raise Dropped("deadline")
        decoded, extra = ticket.upload.memory()
        reservation.take(decoded)
        with reservation.taken(extra):
            picture = ticket.upload.decode(self._pictures())
        ticket.frame = frame = self._frame(picture, ticket)
        # The weight of a new measurement is an eighth, as in the estimates of the scheduler.
        self._decode_s += (frame.trace.decoded_s - ticket.begun_s - self._decode_s) / 8
        return self._predictor.submit(frame, ticket.deadline_s)

    def _pictures(self) -> EncodedPictures:
        """The decoder of this thread."""
        if not hasattr(self._thread_local, "pictures"):
            _lower_priority()
            self._thread_local.pictures = EncodedPictures()
        pictures: EncodedPictures = self._thread_local.pictures
        return pictures

    def _frame(self, picture: Picture, ticket: Ticket) -> Frame:
        assert ticket.begun_s is not None
        trace = Trace(ticket.begun_s, self._clock())
        return Frame(QUEUE, 0, next(self._numbers), picture, None, INFO, trace, regions=(ticket.region,))


def _lower_priority() -> None:
    """Lower the priority of this thread below the event loop, which refuses requests. Measured at 2.5 times the possible load,
    on two cores that other programs use too: the median refusal took 5 ms with it, 24 ms without it."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)


def _outcome(future: Future[Prediction]) -> Answered:
    try:
        return future.result()
    except CancelledError:
        return Dropped("shutdown")
    except BaseException as error:
        return error
