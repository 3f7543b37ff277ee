"""What the build side and the runtime agree on: names, argument struct, layouts, launch shapes, manifest.

Nothing here imports torch, touches a device or reads the environment. Both packages import it;
`contract_hash` covers everything that would make an old wheel and a new loader misunderstand each other.
"""
