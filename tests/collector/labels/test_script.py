"""What interpreters run, by their command lines."""

import subprocess
import sys
from pathlib import Path

import pytest

from collector.labels.process_facts import read_facts
from collector.labels.script import script_of
from collector.processes.process import read_process


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("/usr/bin/python3.11 /srv/worker.py --port 80", "worker.py"),
        ("/venv/bin/python -u -X dev -W error app.py", "app.py"),
        ("/usr/bin/python3 /venv/bin/gunicorn shop.wsgi:app", "gunicorn"),
        ("/usr/bin/python3 -m shop.worker --fast", "shop.worker"),
        ("/usr/bin/python3 -mhttp.server", "http.server"),
        ("/usr/bin/python3 -c print()", ""),
        ("/usr/bin/python3", ""),
        ("/usr/bin/node --inspect=0 -r ts-node/register /srv/server.js", "server.js"),
        ("/usr/bin/node -e while(1); x.js", ""),
        ("/usr/bin/deno run --allow-net main.ts", "main.ts"),
        ("/usr/bin/java -Xmx1g -cp /a:/b com.shop.Main", "Main"),
        ("/opt/jdk-21/bin/java -Dx=y -jar /srv/shop.jar --port 80", "shop.jar"),
        ("/usr/bin/ruby3.1 -I lib bin/rails server", "rails"),
        ("/usr/bin/perl -w /opt/x.pl", "x.pl"),
        ("/usr/bin/php8.2 -d memory_limit=1G artisan queue:work", "artisan"),
        ("/usr/bin/bash /etc/backup.sh", "backup.sh"),
        ("/usr/bin/bash -c ls", ""),
        ("/usr/bin/bash", ""),
        ("/usr/local/bin/shop /srv/config.py", ""),
        ("/usr/bin/node_exporter x.js", ""),
    ],
)
def test_a_script_is_named_by_what_runs(command: str, name: str) -> None:
    executable, *_ = arguments = command.split()
    assert script_of(executable, arguments) == name


def test_a_process_that_runs_a_script_has_its_name(tmp_path: Path) -> None:
    script = tmp_path / "price worker.py"
    script.write_text("import time; print(flush=True); time.sleep(600)")
    process = subprocess.Popen([sys.executable, str(script), "x"], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline()
        known = read_process(process.pid)
        assert known is not None
        facts = read_facts(known, (), False)
        assert facts.script == "price worker.py"
        assert (facts.command_line, facts.complete) == ("", True)
    finally:
        process.kill()
        process.wait()
