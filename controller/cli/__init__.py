"""The command `fde`: a module for the commands of each subject, joined by `app`."""
