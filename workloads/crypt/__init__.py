"""The ciphers of `file_ciphers` and `cipher_modes`, and the libraries that implement them."""
