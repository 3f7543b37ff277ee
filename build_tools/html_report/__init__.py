"""A build as one HTML file that needs nothing else: coverage, sizes, compile times, registers."""
