"""A shop in Flask."""

from flask import Flask

app = Flask(__name__)


@app.get("/checkout/<int:number>")
def checkout(number: int) -> str:
    return str(sum(sorted(range(number))))
