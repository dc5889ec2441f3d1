"""The report page: results in, one HTML file out, a pure function of the results."""
