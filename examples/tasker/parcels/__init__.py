"""An application of tasker-py: it ships parcels and prints their labels."""
