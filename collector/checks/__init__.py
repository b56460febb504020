"""The checks of `icestream collect --check`: one function for each check, one file for each area."""
