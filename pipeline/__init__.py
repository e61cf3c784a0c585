"""Build, prove, sign and promote a family of GPU images, with evidence bound to digests."""
