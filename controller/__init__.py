"""The programs on the controller: planning, measuring and sealing suites, and the command `fde`."""

import logging

logging.getLogger(__name__).addHandler(logging.NullHandler())  # a session adds its file
