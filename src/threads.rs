//! Worker threads: one parallel region per step, barriers between its phases.
