"""The clusters that this master drives, with their pools and nodes."""
