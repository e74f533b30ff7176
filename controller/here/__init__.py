"""`fde here`: what dm-crypt costs on this machine, measured on a file on its disk."""
