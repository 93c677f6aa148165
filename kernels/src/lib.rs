//! Vector kernels of rope-cpu.
