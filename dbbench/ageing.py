"""A filesystem with a past: filled and churned by a seeded sequence before the dataset is restored."""
