"""Programs that run in the guest, with the standard library only."""
