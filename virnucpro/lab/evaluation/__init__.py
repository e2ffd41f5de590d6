"""Evaluation of predictions: labels, fragments, tables of tools, figures of merit."""
