"""The charts of the page, a module for each, and the kit that they share."""
