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

from .errors import FolderError

ENDINGS = [signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
# Who asks again after so many seconds insists.
INSISTING = 2.0
# What came where nothing can be raised comes again after so many seconds.
SOON = 0.05
WAITS = -math.inf
# An error so many seconds after an interruption may be what other code has made of it.
RECENT = 2.0


class _Once:
    """What such a signal does: it interrupts, and nothing more while what is done is being written."""

    def __init__(self, before: dict[signal.Signals, Any]) -> None:
        self.before = before
        self.asked: float | None = None
        self.number = signal.SIGINT.value
        # Whether what was raised has come to somebody who makes an end.
        self.heard = False
        # Whether that is over in which the signals are ours: what comes now is raised after it.
        self.closed = False
        self.print_unraisable = sys.unraisablehook
        self.main = threading.get_ident()

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.asked is None or now - self.asked > INSISTING:
            self.number, self.heard = number, False
            if self.closed:
                self.asked = WAITS
            elif _is_forgetful(frame):
                self.come_again()
            else:
                self.asked = now
                raise KeyboardInterrupt

    def unraisable(self, found: Any) -> None:
        """What is forgotten in other callbacks, as in those of weak references, is not printed either."""
        if found.exc_type is KeyboardInterrupt and self.asked is not None and not self.closed:
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
        if self.asked == WAITS and not self.closed:
            if hasattr(signal, "pthread_kill"):  # which also wakes who waits for another process
                signal.pthread_kill(self.main, number)
            else:
                _thread.interrupt_main(signal.Signals(number))

    def is_behind(self) -> bool:
        """Whether an error that comes now may be what other code has made of an interruption."""
        return not self.heard and self.asked is not None and time.monotonic() - self.asked < RECENT


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


def _give_back(handlers: dict[signal.Signals, Any]) -> None:
    """Let each signal do again what it did, also if one of them interrupts meanwhile."""
    left = list(handlers.items())
    try:
        while left:
            signal.signal(*left[-1])  # from the last on: SIGINT, which raises by itself, is the first
            left.pop()
    finally:
        for number, handler in left:
            signal.signal(number, handler)


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
    try:
        try:
            for number in heeded:
                signal.signal(number, once)
            sys.unraisablehook = once.unraisable
            yield
        finally:
            once.closed = True
    finally:  # one that came before that is here by now
        if sys.unraisablehook == once.unraisable:
            sys.unraisablehook = once.print_unraisable
        _give_back(heeded)
    if once.asked == WAITS:  # at the very end, where nothing could be raised; an error has words of its own
        once.asked = time.monotonic()
        raise KeyboardInterrupt


@contextlib.contextmanager
def asked_as_before() -> Iterator[None]:
    """Inside of `asked_once`, let the signals do what they did before it: a server has handlers of its own."""
    once = _handler()
    if once is None:
        yield
        return
    try:
        _give_back(once.before)
        yield
    finally:
        _give_back(dict.fromkeys(once.before, once))


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

    Compiled code that calls Python back, such as that which draws paths, may say that its argument is wrong. This
    stands around the work, inside of what is done when it is interrupted: what goes wrong then has its own words.
    """
    try:
        yield
    except KeyboardInterrupt:
        handler = _handler()
        if handler is not None:
            handler.heard = True
        raise
    except FolderError:  # nobody makes one of an interruption
        raise
    except Exception as error:
        handler = _handler()
        if handler is not None and handler.is_behind():
            handler.heard = True
            raise KeyboardInterrupt from error
        raise


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Let all of them wait until something is written."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    handlers = _heeded()
    try:
        for number in handlers:
            signal.signal(number, lambda number, _: came.append(number))
        yield
    finally:
        _give_back(handlers)
    for number in came[:1]:
        handler = handlers[signal.Signals(number)]
        if callable(handler):
            handler(number, inspect.currentframe())  # not where it came, which may have been a finaliser
        elif handler == signal.SIG_DFL:
            os.kill(os.getpid(), number)
