//! Parsing JSON.
