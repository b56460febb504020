"""A shop's work in the background, with folders as its broker."""

import os
from pathlib import Path

from celery import Celery

folder = Path(os.environ["SHOP_BROKER"])
app = Celery("shop", broker="filesystem://")
app.conf.broker_transport_options = {
    "data_folder_in": str(folder / "queue"),
    "data_folder_out": str(folder / "queue"),
    "control_folder": str(folder / "control"),
}
app.conf.task_ignore_result = True
app.conf.worker_hijack_root_logger = False


@app.task(name="invoice")
def invoice(number: int) -> int:
    return sum(sorted(range(number)))
