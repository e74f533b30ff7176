"""The virtual lab: guest, drives, RAPL zone and meter that are modelled."""
