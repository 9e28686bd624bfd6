"""Stage 6, the release: the prefixes on which enough experts agree, with exact noise."""
