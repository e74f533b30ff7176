"""Pictures: colour-blind safe, fit for print, every axis with its unit."""
