"""Speed of the virtual drive."""
