//! RoPE: one plan from flags and metadata, its frequency tables, and the cos/sin cache.
