"""The native module: kernels, attention, the decoder and sampling, in C++. Knows nothing of requests."""
