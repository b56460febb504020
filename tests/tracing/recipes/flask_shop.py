"""A shop in Flask. It has a span while it is loaded, which may be in a server's master process."""

from flask import Flask
from opentelemetry import trace

app = Flask(__name__)
with trace.get_tracer("shop").start_as_current_span("load"):
    sum(range(1000))


@app.get("/checkout/<int:number>")
def checkout(number: int) -> str:
    return str(sum(sorted(range(number))))
