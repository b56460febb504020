"""The tests as a package, so that no folder of theirs is taken for the package of the same name that it tests."""
