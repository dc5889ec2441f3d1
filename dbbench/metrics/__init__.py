"""Metrics of a trial: series, histograms, steadiness, summaries, and the table of metrics."""
