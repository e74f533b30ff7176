"""What runs on the controller: plans, sessions and seals of suites.

`steps` alone needs nothing but Python: it runs before there is a virtual environment.
"""
