"""Linear algebra on symmetric matrices: packing, the integer lattice, eigenvectors."""
