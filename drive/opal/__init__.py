"""TCG Storage: Opal SSC 2.01 on top of Security Send and Receive."""
