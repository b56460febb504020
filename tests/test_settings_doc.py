"""docs/settings.md."""

import dataclasses

import api.settings
import collector.settings
import gateway.settings
import jobs.settings
import sinks.settings
import standalone.settings
import streams.settings
from docs.generate_settings import FILE, PARTS, text
from icestream.cli import misspelt
from icestream.settings import Settings, variable

MODULES = (
    api.settings,
    collector.settings,
    gateway.settings,
    jobs.settings,
    sinks.settings,
    standalone.settings,
    streams.settings,
)


def test_the_page_says_what_the_settings_classes_say() -> None:
    assert FILE.read_text(encoding="utf-8") == text(), "run make docs"


def test_every_settings_class_that_a_command_takes_is_documented() -> None:
    documented = {settings for _, _, settings in PARTS}
    undocumented = {found for found in subclasses(Settings) if not subclasses(found)} - documented
    assert not {found for found in undocumented if not found.__module__.startswith("tests.")}


def test_the_settings_of_one_command_are_not_taken_for_misspelt_ones_of_another() -> None:
    names = [{field.name for field in dataclasses.fields(settings)} for _, _, settings in PARTS]
    everywhere = [variable(name) for name in set().union(*names)]
    assert [wrong for own in names for wrong in misspelt(own, everywhere)] == []


def subclasses(found: type[Settings]) -> set[type[Settings]]:
    direct = set(found.__subclasses__())
    return direct.union(*(subclasses(one) for one in direct)) if direct else set()
