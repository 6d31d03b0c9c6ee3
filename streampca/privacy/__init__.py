"""What is promised and how it is kept: budgets, guarantees, noise."""
