"""The part of the runtime that knows torch: packing, operator, module, checkpoints."""
