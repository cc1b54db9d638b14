//! Allocator policies as pure offset logic over an abstract device. No CUDA, no I/O.
#![forbid(unsafe_code)]
