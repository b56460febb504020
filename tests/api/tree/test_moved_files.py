"""Paths of two sides are paired where they differ by their folders only, and in one way."""

from posixpath import basename

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.tree.moved_files import moved_files

PATHS = st.sets(
    st.lists(st.sampled_from(["", "srv", "a", "b", "1", "2", "app.py", "lib"]), min_size=1, max_size=6).map("/".join),
    max_size=12,
)


def pairs(before: str, now: str) -> dict[str, str]:
    """`before` and `now`: paths with blanks between them. Returns those that moved, and where to."""
    sides = set(before.split()), set(now.split())
    return {path: after for path, after in moved_files(*sides).items() if path in sides[0]}


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ("/co-1/app.py", "/co-2/app.py", {"/co-1/app.py": "/co-2/app.py"}),
        ("/srv/alpha.py", "/srv/beta.py", {}),
        # A file that both have has not moved, whatever else has its name.
        ("/srv/a/main.py", "/srv/a/main.py /srv/b/main.py", {}),
        ("/srv/a/main.py /srv/b/main.py", "/srv/a/main.py /srv/c/main.py", {"/srv/b/main.py": "/srv/c/main.py"}),
        # The longest end that is equal decides.
        (
            "/1/__init__.py /1/x/__init__.py /1/y/__init__.py",
            "/opt/2/y/__init__.py /opt/2/x/__init__.py /opt/2/__init__.py",
            {
                "/1/__init__.py": "/opt/2/__init__.py",
                "/1/x/__init__.py": "/opt/2/x/__init__.py",
                "/1/y/__init__.py": "/opt/2/y/__init__.py",
            },
        ),
        # Two services, each in a folder of its own, also if one of them has no samples on a side.
        (
            "/srv/a/1/main.py /srv/b/1/main.py",
            "/srv/a/2/main.py /srv/b/2/main.py",
            {"/srv/a/1/main.py": "/srv/a/2/main.py", "/srv/b/1/main.py": "/srv/b/2/main.py"},
        ),
        ("/srv/a/1/main.py /srv/b/1/main.py", "/srv/b/2/main.py", {"/srv/b/1/main.py": "/srv/b/2/main.py"}),
        # A file of the same name came with the release.
        ("/rel/1/index.js", "/rel/2/index.js /rel/2/new/index.js", {"/rel/1/index.js": "/rel/2/index.js"}),
        # Which is which cannot be told.
        ("/srv/a/main.py /srv/b/main.py", "/srv/c/main.py /srv/d/main.py", {}),
        ("/srv/a/main.py", "/srv/c/main.py /srv/d/main.py", {}),
        ("main.c", "src/main.c", {"main.c": "src/main.c"}),
        ("", "/app", {}),
    ],
)
def test_a_file_is_paired_with_the_one_that_it_moved_to(before: str, now: str, expected: dict[str, str]) -> None:
    assert pairs(before, now) == expected


@given(PATHS, PATHS)
def test_pairs_are_of_one_name_each_with_one_and_the_same_from_both_sides(before: set[str], now: set[str]) -> None:
    found = moved_files(before, now)
    forth = {path: after for path, after in found.items() if path in before}
    back = {path: after for path, after in moved_files(now, before).items() if path in now}
    assert forth == {after: path for path, after in back.items()}
    assert len(set(forth.values())) == len(forth)
    assert set(found) == set(forth) | set(forth.values())
    assert not set(found) & before & now
    assert all(basename(path) == basename(after) != "" for path, after in forth.items())


@given(PATHS)
def test_a_folder_that_moved_has_all_its_files_paired(paths: set[str]) -> None:
    before, now = ({f"{folder}/x/{path}" for path in paths if basename(path)} for folder in ("/rel/1", "/rel/2"))
    expected = {path: path.replace("/rel/1", "/rel/2", 1) for path in before}
    assert {path: after for path, after in moved_files(before, now).items() if path in before} == expected


def test_paths_of_any_length_and_number_are_paired() -> None:
    long = [{f"/{side}/{'x/' * 3000}{name}/f" for name in "ab"} for side in "12"]
    assert moved_files(*long) == {path: path.replace("/1/", "/2/", 1) for paths in long for path in paths}
    many = [{f"/{side}/{number}/f" for number in range(3000)} for side in "12"]
    assert len(moved_files(*many)) == 6000
