"""The query API over HTTP: the application, its parameters, answers and errors."""
