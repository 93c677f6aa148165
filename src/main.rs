//! The `rope-cpu` program.

fn main() {}
