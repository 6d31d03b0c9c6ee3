"""Attacks that a private release must withstand, and that one without privacy does not.

`fingerprinting` traces contributors of a subspace by the words of a
fingerprinting code in their rows (Dwork, Talwar, Thakurta and Zhang 2014,
Section 5). What it finds on a private algorithm is no more than it finds on innocents.
"""
