"""`fde here` on somebody's machine: a guest with a battery, an ordinary user, and faults."""
