"""Exit code 0 if what runs in this container answers its /healthz: the image's HEALTHCHECK."""

import sys
import urllib.error
import urllib.request

PORTS = (4060, 4040, 4061, 4062, 4063, 4064, 4065, 4066)
"""Where the parts listen by default (docs/operations.md#ports-and-health). A container has one part."""


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


if __name__ == "__main__":
    sys.exit(not any(answers(port) for port in PORTS))
