"""How fast a report is made and opened, how large it is, and whether it is accessible."""
