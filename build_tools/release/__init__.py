"""From finished wheels to what is published."""
