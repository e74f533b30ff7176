"""What runs on the controller: plans, sessions and seals of suites.

`testbed` alone needs nothing but Python: it runs before there is a virtual environment.
"""

import logging

logging.getLogger(__name__).addHandler(logging.NullHandler())  # a session adds its file
