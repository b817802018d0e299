"""Ctrl-C, the system's wish to end the process, and a terminal that closes: they interrupt once, and never in the
middle of a write. Nothing here imports JAX.
"""

import _thread
import contextlib
import gc
import inspect
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

ENDINGS = [signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
# Who asks again after so many seconds insists.
INSISTING = 2.0
# What came where nothing can be raised comes again after so many seconds.
SOON = 0.05
WAITS = -math.inf


class _Once:
    """What such a signal does: it interrupts, and nothing more while what is done is being written."""

    def __init__(self, before: dict[signal.Signals, Any]) -> None:
        self.before = before
        self.asked: float | None = None
        self.number = signal.SIGINT.value
        # Whether what was raised has come to somebody who makes an end.
        self.heard = False
        self.print_unraisable = sys.unraisablehook

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.asked is None or now - self.asked > INSISTING:
            self.number, self.heard = number, False
            if _is_forgetful(frame):
                self.come_again()
                return
            self.asked = now
            raise KeyboardInterrupt

    def unraisable(self, found: Any) -> None:
        """What is forgotten in other callbacks, as in those of weak references, is not printed either."""
        if found.exc_type is KeyboardInterrupt and self.asked is not None:
            self.come_again()
        else:
            self.print_unraisable(found)

    def come_again(self) -> None:
        """Send the signal again, soon."""
        self.asked = WAITS
        _thread.start_new_thread(self._again, (self.number,))  # no other way of starting one takes no lock

    def _again(self, number: int) -> None:
        """Send the signal again, if nobody has interrupted meanwhile."""
        time.sleep(SOON)
        if self.asked == WAITS:
            _thread.interrupt_main(signal.Signals(number))


def _is_forgetful(frame: FrameType | None) -> bool:
    """Whether we are inside a finaliser, or a callback of the garbage collector, of which JAX has one: Python prints
    what is raised there, and forgets it.
    """
    callbacks = {getattr(callback, "__code__", None) for callback in gc.callbacks}
    while frame is not None:
        if frame.f_code.co_name == "__del__" or frame.f_code in callbacks:
            return True
        frame = frame.f_back
    return False


def _handler() -> _Once | None:
    handlers = [signal.getsignal(number) for number in ENDINGS]
    return next((handler for handler in handlers if isinstance(handler, _Once)), None)


def _heeded() -> dict[signal.Signals, Any]:
    """What those of the signals do that are not ignored."""
    handlers = {number: signal.getsignal(number) for number in ENDINGS}
    return {number: handler for number, handler in handlers.items() if handler not in (signal.SIG_IGN, None)}


@contextlib.contextmanager
def asked_once() -> Iterator[None]:
    """Let the signals interrupt once, however often they come at a time. What is ignored, as in a process in the
    background, stays ignored.
    """
    if _handler() is not None or threading.current_thread() is not threading.main_thread():
        yield
        return
    heeded = _heeded()
    once = _Once(heeded)
    for number in heeded:
        signal.signal(number, once)
    sys.unraisablehook = once.unraisable
    try:
        yield
    finally:
        sys.unraisablehook = once.print_unraisable
        for number, handler in heeded.items():
            signal.signal(number, handler)
    if once.asked == WAITS:  # at the very end, where nothing could be raised
        once.asked = time.monotonic()
        raise KeyboardInterrupt


@contextlib.contextmanager
def asked_as_before() -> Iterator[None]:
    """Inside of `asked_once`, let the signals do what they did before it: a server has handlers of its own."""
    once = _handler()
    if once is None:
        yield
        return
    for number, handler in once.before.items():
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number in once.before:
            signal.signal(number, once)


def interrupt_if_asked() -> None:
    """Interrupt, if that was asked for where nothing could be raised."""
    if threading.current_thread() is threading.main_thread():
        handler = _handler()
        if handler is not None and handler.asked is not None:
            handler.asked = time.monotonic()
            raise KeyboardInterrupt


@contextlib.contextmanager
def recognised() -> Iterator[None]:
    """An interruption that somebody else's code has made another error of, as an interruption.

    Compiled code that calls Python back, such as that which draws paths, may say that its argument is wrong.
    """
    try:
        yield
    except KeyboardInterrupt:
        handler = _handler()
        if handler is not None:
            handler.heard = True
        raise
    except Exception:
        handler = _handler()
        if handler is not None and not handler.heard:  # else it went wrong while what is done was written
            interrupt_if_asked()
        raise


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Let all of them wait until something is written."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    handlers = _heeded()
    for number in handlers:
        signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    for number in came[:1]:
        handler = handlers[signal.Signals(number)]
        if callable(handler):
            handler(number, inspect.currentframe())  # not where it came, which may have been a finaliser
        elif handler == signal.SIG_DFL:
            os.kill(os.getpid(), number)
