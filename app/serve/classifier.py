"""Classifier: the pictures of a request through decoding threads and predictor, and back.

    event loop          admit -> one ticket a picture                                        outcome -> answer
    decode:N                        look at the size -> decode -> predictor.submit()
    predictor's threads                                             batches -> future -------^

Refused before any work is spent: what waits to be decoded counts as waiting, so that a full queue says no while the body
is all that a request has cost. A ticket ends once, with a prediction or an error, whoever comes first: the predictor, the
deadline, the caller who hangs up.
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
"""The longest Retry-After."""
INFO = StreamInfo()


class RequestPredictor(Protocol):
    """What the service needs of the predictor or the pool; they say what each does."""

    @property
    def retry_s(self) -> float: ...
    def open_requests(self, name: str, *, capacity: int) -> None: ...
    def submit(self, frame: Frame, deadline_s: float | None = None) -> Future[Prediction]: ...
    def waiting(self, name: str) -> int: ...
    def end_s(self, name: str, deadline_s: float) -> float: ...


Outcome = Prediction | BaseException


class Ticket:
    """One picture of a request. `outcome` is set once, in the event loop."""

    def __init__(self, upload: Upload, deadline_s: float, region: Region) -> None:
        self.upload = upload
        self.deadline_s = deadline_s
        self.region = region
        self.begun_s: float | None = None
        """A thread began to decode it."""
        self.frame: Frame | None = None
        self.future: Future[Prediction] | None = None
        self.outcome: Outcome | None = None
        self.given_up = False


class PendingRequest:
    """The tickets of one request. Event loop."""

    def __init__(self, tickets: Sequence[Ticket], loop: asyncio.AbstractEventLoop) -> None:
        self.tickets = tickets
        self.done: asyncio.Future[None] = loop.create_future()
        self._left = len(tickets)

    def end(self, ticket: Ticket, outcome: Outcome) -> None:
        """A ticket has come back; late ones are nobody's any more."""
        if ticket.outcome is not None:
            return
        ticket.outcome = outcome
        self._left -= 1
        # One that was refused: the caller has to come again with all of them.
        if (self._left == 0 or isinstance(outcome, Refused)) and not self.done.done():
            self.done.set_result(None)

    def give_up(self, error: BaseException) -> None:
        """End what has not ended with `error`; the predictor need not compute it any more."""
        for ticket in self.tickets:
            if ticket.outcome is None:
                ticket.given_up = True
                self.end(ticket, error)
                if ticket.future is not None:
                    ticket.future.cancel()


class Classifier:
    """Used as `with classifier:` within that of the predictor. `capacity`: pictures that may wait."""

    def __init__(
        self, predictor: RequestPredictor, capacity: int, threads: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.capacity = capacity
        self._predictor = predictor
        self._clock = clock
        self._threads = ThreadPoolExecutor(threads, "decode")
        self._count = threads
        self._local = threading.local()
        self._lock = threading.Lock()
        self._undecoded = 0
        """Tickets on their way to `submit`."""
        self._decode_s = 0.0
        """Measured time of decoding one."""
        self._numbers = itertools.count()

    def __enter__(self) -> Classifier:
        self._predictor.open_requests(QUEUE, capacity=self.capacity)
        self._warm_up()
        return self

    def __exit__(self, *error: object) -> None:
        self._threads.shutdown()

    def _warm_up(self) -> None:
        """Every thread decodes once: the first time costs 8 ms more."""
        _, jpeg = cv2.imencode(".jpg", np.full((64, 64, 3), 128, np.uint8))
        together = threading.Barrier(self._count)

        def once() -> None:
            together.wait()
            self._pictures().decode(jpeg.tobytes())

        for future in [self._threads.submit(once) for _ in range(self._count)]:
            future.result()

    @property
    def waiting(self) -> int:
        """Pictures that wait, to be decoded too."""
        return self._undecoded + self._predictor.waiting(QUEUE)

    def check_room(self, n: int, deadline_s: float) -> None:
        """:raises Refused: if n pictures more are too many now, or cannot be answered in time."""
        if self.waiting + n > self.capacity:
            raise Refused(RETRY_S, "full")
        # Behind those that wait for a decoding thread, too: where decoding is what takes longest, all that waits waits there.
        # One that finds none before it is tried, whatever the last ones took: else a slow moment would be renewed by nobody.
        decoding_s = (self._undecoded + n) * self._decode_s / self._count if self._undecoded else 0.0
        end_s = self._predictor.end_s(QUEUE, deadline_s) + decoding_s
        if math.isinf(end_s):
            raise Refused(self._predictor.retry_s, "no_worker")  # all were lost, and the next is not there yet
        if end_s > deadline_s:
            raise Refused(min(end_s - deadline_s, LONG_S), "deadline")

    def take(self, uploads: Sequence[Upload], deadline_s: float, holding: Reservation, region: Region) -> PendingRequest:
        """Send pictures on their way; `region` is answered of each. Event loop.

        :raises Refused: if there is no room for them.
        """
        self.check_room(len(uploads), deadline_s)
        loop = asyncio.get_running_loop()
        request = PendingRequest([Ticket(upload, deadline_s, region) for upload in uploads], loop)
        with self._lock:
            self._undecoded += len(request.tickets)
        for ticket in request.tickets:
            self._threads.submit(self._decode, request, ticket, holding, loop)
        return request

    # Thread decode:N.

    def _decode(self, request: PendingRequest, ticket: Ticket, holding: Reservation, loop: asyncio.AbstractEventLoop) -> None:
        def back(outcome: Outcome) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and with it whoever asked
                loop.call_soon_threadsafe(request.end, ticket, outcome)

        try:
            future = self._submit(ticket, holding)
        except BaseException as error:
            back(error)
            return
        finally:
            with self._lock:
                self._undecoded -= 1
        ticket.future = future
        if ticket.given_up:
            future.cancel()
        future.add_done_callback(lambda f: back(_outcome(f)))

    def _submit(self, ticket: Ticket, holding: Reservation) -> Future[Prediction]:
        ticket.begun_s = self._clock()
        if ticket.given_up or ticket.begun_s > ticket.deadline_s:
            raise Dropped("deadline")
        decoded, beside = ticket.upload.memory()
        holding.take(decoded)
        with holding.taken(beside):
            picture = ticket.upload.decode(self._pictures())
        ticket.frame = frame = self._frame(picture, ticket)
        # An eighth, as the scheduler's estimates.
        self._decode_s += (frame.trace.decoded_s - ticket.begun_s - self._decode_s) / 8
        return self._predictor.submit(frame, ticket.deadline_s)

    def _pictures(self) -> EncodedPictures:
        if not hasattr(self._local, "pictures"):
            _give_way()
            self._local.pictures = EncodedPictures()
        pictures: EncodedPictures = self._local.pictures
        return pictures

    def _frame(self, picture: Picture, ticket: Ticket) -> Frame:
        assert ticket.begun_s is not None
        trace = Trace(ticket.begun_s, self._clock())
        return Frame(QUEUE, 0, next(self._numbers), picture, None, INFO, trace, regions=(ticket.region,))


def _give_way() -> None:
    """Let this thread give way to the event loop, which says no for it: at 2.5 times of what could be done, on two cores that
    others use too, the median refusal took 5 ms so, and 24 ms without."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)


def _outcome(future: Future[Prediction]) -> Outcome:
    try:
        return future.result()
    except CancelledError:
        return Dropped("shutdown")
    except BaseException as error:
        return error
