"""Measurements of speed and memory; nothing here is a test."""
