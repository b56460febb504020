"""The command line."""

import os
import signal
import subprocess
import sys
from importlib.metadata import entry_points

import pytest

from icestream import cli
from icestream.version import VERSION
from tests.waiting import PATIENCE_S

COMMANDS = sorted(entry.name for entry in entry_points(group=cli.GROUP))


def test_every_command_says_in_a_line_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name in COMMANDS:
        (line,) = [line for line in lines if line.startswith(f"  {name:10} ")]
        summary = line.removeprefix(f"  {name:10} ")
        assert summary[0].islower()
        assert not summary.endswith(".")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [["--help"], ["tail", "--help"], ["query", "merge", "--help"]])
def test_a_command_whose_output_is_closed_ends_quietly(arguments: list[str], unbuffered: str) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "icestream.cli", *arguments], stdout=write, stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONUNBUFFERED": unbuffered}, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    os.close(write)
    assert done.stderr == b""
    if not unbuffered:  # else argparse passes over the error, and the exit code is 0
        assert done.returncode == 128 + signal.SIGPIPE


LINES = "print(*range(100_000), sep='\\n')"
BYTES = "sys.stdout.buffer.write(bytes(1_000_000)); sys.stdout.buffer.flush()"


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("code", ["print('a line')", LINES, BYTES])
def test_output_that_cannot_be_written_is_one_line(code: str, unbuffered: str) -> None:
    program = f"import sys; from icestream import cli; cli._main = lambda _: exec({code!r}) or 0; "
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", program + "sys.exit(cli.main([]))"], stdout=full, stderr=subprocess.PIPE, text=True,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered}, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
    assert done.stderr == "icestream: cannot write standard output: No space left on device\n"
    assert done.returncode == 1


def test_a_log_has_no_control_characters_and_no_line_that_a_name_made_up() -> None:
    name = "/mnt/\x1b]0;title\x07\x9b31m\u202e\n2026-01-31 12:00:00,000 collect ERROR made up"
    program = (
        "import logging; from icestream import cli; cli.log_to_standard_error('up'); logging.error(cli.sys.argv[1])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, name], stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=True
    )
    first, second = done.stderr.splitlines()
    assert first.endswith(" up ERROR /mnt/?]0;title??31m?")
    assert second == "  2026-01-31 12:00:00,000 collect ERROR made up"


def test_a_command_writes_all_of_its_output() -> None:
    program = (
        f"import sys; from icestream import cli; cli._main = lambda _: exec({LINES!r}) or 0; sys.exit(cli.main([]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "".join(f"{n}\n" for n in range(100_000)))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main([name, "--help"])
    assert f"usage: icestream {name}" in capsys.readouterr().out


def test_no_command_and_an_unknown_one_are_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert cli.main(["profile"]) == 2
    assert "no command 'profile'" in capsys.readouterr().err


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"icestream {VERSION}\n"


def test_a_bad_setting_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("ICESTREAM_KAFKA_IN_PROCESS", "perhaps")
    assert cli.main(["topics", "check"]) == 2
    assert capsys.readouterr().err == (
        "icestream topics: ICESTREAM_KAFKA_IN_PROCESS: expected true or false, got 'perhaps'\n"
    )


def test_a_part_that_is_not_installed_says_what_to_install() -> None:
    code = "import sys; sys.modules['confluent_kafka'] = None; from icestream.cli import main; sys.exit(main(['tail']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install 'icestream[" in done.stderr


def test_a_misspelt_variable_is_named_with_the_right_one(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ICESTREAM_FREQUENCEY", "99")
    monkeypatch.setenv("ICESTREAM_INTERVAL", "soon")
    assert cli.main(["collect"]) == cli.WRONG_USAGE
    assert "ICESTREAM_FREQUENCEY is no setting of icestream collect; is it ICESTREAM_FREQUENCY?" in caplog.text
