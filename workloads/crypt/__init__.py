"""The ciphers of `file_ciphers` and `cipher_modes`: which there are, and who does them."""
