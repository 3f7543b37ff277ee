"""From finished wheels to what people download: bundles, SBOM, provenance, signatures, indexes."""
