"""What `icestream collect --check` looks at: a function a thing, in files by where the thing belongs."""
