"""What someone else may have written into a results folder."""

TEXT = "not of dbbench\n"
SLOWEST_S = 5.0  # of what takes some 10 ms on a machine that is not busy

SECRET = "root:$6$secret:20000:0:99999:7:::\n"
