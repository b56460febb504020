"""The query API and the web page."""
