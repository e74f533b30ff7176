"""What a suite folder is, for all who write or read one; the standard library alone."""
