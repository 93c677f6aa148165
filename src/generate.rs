//! The loop from a prompt to text.
