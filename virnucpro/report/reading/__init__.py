"""Readers of a finished run folder: tables and event logs."""
