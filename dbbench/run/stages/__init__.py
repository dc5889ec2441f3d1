"""The stages of a trial between its device and its result, one module each, called in order by `run/trial.py`."""
