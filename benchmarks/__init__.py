"""What we claim about speed, measured beside what people would use otherwise. Run with `bash scripts/bench`."""
