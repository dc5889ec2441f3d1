"""Operations on the filled filesystem, timed after the load: check, snapshot, clone, grow. One file each.

What a filesystem or layer must be able to do for them is in `port.py`, who can in `abilities.py`.
"""
