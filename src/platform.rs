//! All that differs between operating systems: memory, processors, signals.
