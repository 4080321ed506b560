"""Runs the worker until SIGTERM or SIGINT: python -m parcels"""
import signal
import threading

from tasker_core import Worker

ended = threading.Event()
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda *_: ended.set())
with Worker.start(handler_packages=["parcels.handlers"]):
    print("the worker runs", flush=True)
    ended.wait()
