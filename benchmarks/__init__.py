"""Penstock measured against its bars, a hand-written Spark program and a peer, all in one run."""
