"""Shares of samples, compared with those that a program has. `make reports` prints them."""


def compare_share(what: str, expected: float, seen: float, within: float) -> None:
    print(f"share: {what}: expected {expected:.1%}, seen {seen:.1%}")
    assert abs(seen - expected) <= within, f"{what}: expected {expected:.1%}, seen {seen:.1%}"
