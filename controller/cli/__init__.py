"""The command `fde`: each module has the commands of one subject, `app` joins them."""
