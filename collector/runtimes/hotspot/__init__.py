"""Frames of Java programs on HotSpot, JDK 11 and newer."""
