"""The version of dbbench, for the package and for `import dbbench`."""

__version__ = "0.1.0"
