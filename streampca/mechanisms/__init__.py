"""One private release of one data set, one mechanism a file."""
