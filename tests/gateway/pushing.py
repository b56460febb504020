"""Programs that push their profiles with SDKs of others."""

PYTHON = """
import sys, time
import pyroscope

pyroscope.configure(
    application_name="sdk.python", server_address=sys.argv[1], sample_rate=100, tags={"region": "eu"},
)

def busy_function():
    end = time.thread_time() + float(sys.argv[2])  # of CPU, however busy the machine is
    while time.thread_time() < end:
        sum(range(1000))

with pyroscope.tag_wrapper({"endpoint": "checkout"}):
    busy_function()
pyroscope.shutdown()
"""
