"""What every bench measures: layer shapes (n, k) of well-known models, and rows of activations."""

SHAPES: tuple[tuple[int, int], ...] = (
    (8192, 8192),
    (4096, 4096),
    (28672, 4096),
    (4096, 14336),
    (6144, 4096),
    (2112, 7168),
)
ROWS: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
