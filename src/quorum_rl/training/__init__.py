"""One private mechanism and its loop: what experts contribute, with noise; releases, without."""
