"""Objects of code that are remembered."""

from collector.runtimes.cache import Key, ObjectCache


def test_the_least_recently_used_objects_and_those_of_processes_that_ended_are_forgotten() -> None:
    cache: ObjectCache[str] = ObjectCache(most=3)
    one, two, three, four = Key(1, 8, 0), Key(1, 8, 1), Key(2, 8, 0), Key(3, 8, 0)
    cache.add({one: "a", two: "b", three: "c"})
    assert cache.find([one, four]) == {one: "a"}
    cache.add({four: "d"})
    assert cache.find([one, two, three, four]) == {one: "a", three: "c", four: "d"}
    cache.forget([1, 4])
    assert cache.find([one, two, three, four]) == {three: "c", four: "d"}
    assert len(cache) == 2
