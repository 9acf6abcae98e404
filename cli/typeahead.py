"""What is typed while no prompt reads: it is not shown, and the next prompt takes it as one input.

Owns the state of the terminal between prompts. Without that the terminal would show what is typed
in the middle of the answer, and each line of a paste would be sent as a message.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys

_INPUT_FLAGS, _LOCAL_FLAGS = 0, 3  # of termios.tcgetattr
_ENTER = KeyPress(Keys.ControlM, "\r")
_NEW_LINE = KeyPress(Keys.ControlJ, "\n")


if sys.platform == "win32":
    # A console shows nothing that is typed while nobody reads, and keeps all of it, with Enter as
    # it is, for the next prompt.

    @contextmanager
    def unechoed(keyboard: Input) -> Iterator[list[KeyPress]]:  # noqa: ARG001
        """Nothing is to be done."""
        yield []

    @contextmanager
    def collected(keyboard: Input, keys: list[KeyPress]) -> Iterator[None]:  # noqa: ARG001
        """Nothing is to be done."""
        yield
else:
    import termios

    @contextmanager
    def unechoed(keyboard: Input) -> Iterator[list[KeyPress]]:
        """Have the terminal show nothing that is typed and keep Enter apart from a line feed;
        Ctrl-C and Ctrl-Z do what they do. Gives what was typed before, when the terminal made a
        line feed of Enter. Where no terminal is, does nothing."""
        descriptor = keyboard.fileno()
        if not os.isatty(descriptor):
            yield []
            return
        before = termios.tcgetattr(descriptor)
        _stop_echo(descriptor)
        try:
            keys: list[KeyPress] = []
            while read := keyboard.read_keys():
                keys += read
            keys += keyboard.flush_keys()
            yield [_ENTER if key.key == Keys.ControlJ else key for key in keys]
        finally:
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)

    def _stop_echo(descriptor: int) -> None:
        attributes = termios.tcgetattr(descriptor)
        attributes[_INPUT_FLAGS] &= ~(termios.ICRNL | termios.INLCR | termios.IGNCR)
        attributes[_LOCAL_FLAGS] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN)
        attributes[_LOCAL_FLAGS] |= termios.NOFLSH  # Ctrl-C stops the answer and forgets no input
        termios.tcsetattr(descriptor, termios.TCSANOW, attributes)

    @contextmanager
    def collected(keyboard: Input, keys: list[KeyPress]) -> Iterator[None]:
        """Add to keys what is typed within the block. It is read at once: a terminal whose buffer
        is full, which 4 KiB are, would pass on no Ctrl-C."""
        stop, stopper = os.pipe()
        reader = Thread(target=_collect, args=(keyboard, keys, stop), daemon=True)
        reader.start()
        before = signal.getsignal(signal.SIGCONT)
        if os.isatty(keyboard.fileno()):  # after Ctrl-Z and fg the terminal is as the shell had it
            signal.signal(signal.SIGCONT, lambda *_: _stop_echo(keyboard.fileno()))
        try:
            yield
        finally:
            signal.signal(signal.SIGCONT, before)
            os.close(stopper)
            reader.join()
            os.close(stop)
            keys += keyboard.flush_keys()

    def _collect(keyboard: Input, keys: list[KeyPress], stop: int) -> None:
        while not keyboard.closed:
            readable, _, _ = select.select([keyboard.fileno(), stop], [], [])
            if keyboard.fileno() not in readable:
                return
            keys += keyboard.read_keys()


def as_one_input(keys: list[KeyPress]) -> list[KeyPress]:
    """The keys of one input: a line that ended with Enter is sent; several lines wait in the
    prompt, where one more Enter sends them together."""
    enters = [key.key == Keys.ControlM for key in keys]
    if not any(enters[:-1]):
        return keys
    first = enters.index(False) if False in enters else len(keys)
    last = len(keys) - enters[::-1].index(False) if False in enters else first
    return [_NEW_LINE if key.key == Keys.ControlM else key for key in keys[first:last]]
