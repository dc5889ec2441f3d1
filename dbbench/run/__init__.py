"""A run and its trials: read `trial.py`, the main road, first."""
