"""Where the data is stored: devices, the layers on them, and filesystems."""
