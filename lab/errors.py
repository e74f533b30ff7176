"""What the lab raises: one clear sentence and the way out, shown to people as it stands."""


class LabError(Exception):
    """The lab cannot go on; the message says why and what mends it."""
