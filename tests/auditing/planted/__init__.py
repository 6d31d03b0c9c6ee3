"""Fixed cases and the bugs that are planted in them."""
