"""Settings: flag, variable, default."""

import argparse
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from icestream.settings import KafkaSettings, SettingError, Settings, setting


@dataclass(frozen=True, kw_only=True)
class Some(Settings):
    text: str = setting("as it is", "a text, 100 % of it")
    number: int = setting(19, "a number")
    share: float = setting(0.5, "a share")
    on: bool = setting(False, "on or off")
    address: str = setting("127.0.0.1:1", "an address; empty: none")
    days: int | None = setting(None, "days; empty: unchanged")
    folder: Path | None = setting(None, "a folder")


def parsed(*arguments: str, **environ: str) -> Some:
    parser = argparse.ArgumentParser()
    Some.add_arguments(parser)
    return Some.from_args(parser.parse_args(arguments), environ)


def test_the_flag_wins_over_the_variable_and_that_over_the_default() -> None:
    assert parsed().number == 19
    assert parsed(ICESTREAM_NUMBER="20").number == 20
    assert parsed("--number", "21", ICESTREAM_NUMBER="20").number == 21


def test_an_empty_variable_counts_as_not_given_unless_the_help_says_what_it_means() -> None:
    assert parsed(ICESTREAM_NUMBER="", ICESTREAM_TEXT="", ICESTREAM_DAYS="") == Some()
    assert parsed(ICESTREAM_ADDRESS="") == parsed("--address", "") == Some(address="")


def test_another_process_gets_the_same_settings_also_empty_ones() -> None:
    for settings in (Some(), Some(address=""), Some(number=0, on=True, days=0)):
        assert Some.load(settings.environ()) == settings


def test_false_and_0_as_flags_win_too() -> None:
    assert parsed("--no-on", "--number", "0", ICESTREAM_ON="true", ICESTREAM_NUMBER="5") == Some(number=0)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("ICESTREAM_NUMBER", "many"),
        ("ICESTREAM_SHARE", "half"),
        ("ICESTREAM_ON", "perhaps"),
        ("ICESTREAM_NUMBER", "1.5"),
        ("ICESTREAM_NUMBER", "-1"),
        ("ICESTREAM_SHARE", "-0.1"),
        ("ICESTREAM_SHARE", "inf"),
        ("ICESTREAM_SHARE", "nan"),
    ],
)
def test_what_cannot_be_read_is_named(variable: str, value: str) -> None:
    with pytest.raises(SettingError, match=f"{variable}: expected .*{value}"):
        parsed(**{variable: value})


def test_a_flag_that_cannot_be_read_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        parsed("--number", "many")
    assert "--number: expected int, got 'many'" in capsys.readouterr().err


def test_help_names_the_variable_and_the_default() -> None:
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter)
    Some.add_arguments(parser)
    text = " ".join(parser.format_help().split())
    assert "a text, 100 % of it (default: as it is) [ICESTREAM_TEXT]" in text


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@given(texts, st.integers(0), st.floats(0, allow_nan=False, allow_infinity=False), st.booleans())
def test_settings_that_went_through_the_environment_are_the_same(
    text: str, number: int, share: float, on: bool
) -> None:
    some = Some(text=text or "as it is", number=number, share=share, on=on, folder=Path("/a folder"))
    assert Some.load(some.environ()) == some


def test_a_home_folder_is_expanded() -> None:
    assert parsed(ICESTREAM_FOLDER="~/data").folder == Path.home() / "data"


def test_kafka_settings_of_an_in_process_broker_reach_a_child() -> None:
    settings = KafkaSettings(kafka="127.0.0.1:1", kafka_in_process=True)
    assert KafkaSettings.load(settings.environ()) == settings
