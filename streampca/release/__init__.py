"""What a run releases: subspaces and Gram matrices, estimates computed from them, and files of releases."""
