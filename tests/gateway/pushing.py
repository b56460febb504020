"""Programs that push their profiles with SDKs of others."""

PYTHON = """
import sys, time
import pyroscope

pyroscope.configure(
    application_name="sdk.python", server_address=sys.argv[1], sample_rate=100, tags={"region": "eu"},
)

def busy_function():
    end = time.monotonic() + float(sys.argv[2])
    while time.monotonic() < end:
        sum(range(1000))

with pyroscope.tag_wrapper({"endpoint": "checkout"}):
    busy_function()
pyroscope.shutdown()
"""
