"""The tests as a package, so that no folder of theirs is taken for the package of the same name that it tests.

`make test` has to stay quick, so that people run it:

- A promise has one test there, in its sharpest variant. Variants of the same, and rare faults that take more than 15
  seconds of CPU or 30 in all while a quicker test shows most of it, have `mark.soak`: `make test-more` runs them.
- A test waits for what happens (tests/waiting.py), never for a time. Intervals that are long by default are set to a
  moment: `monkeypatch.setattr(readiness, "LOOK_S", 0.5)`.
- Databases, brokers, browsers and servers are fixtures of the session that are emptied between tests
  (tests/conftest.py, tests/sinks/engine.py). `tests.sinks.running.send` sends messages: an idempotent producer for
  each test would be half a second late.
- Files in which much more time is spent than before are named at the end of a run (tests/file_seconds.py).
"""
