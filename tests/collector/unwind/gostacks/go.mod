module example.org/gostacks

go 1.18
