"""One build on many machines: shards and their merge, and a store of finished cubins."""
