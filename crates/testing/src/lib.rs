//! What several tests of rope-cpu are made of: tiny random models, files built byte by byte, and a
//! forward pass in double precision to compare with.
#![allow(missing_docs, reason = "for tests alone, where names explain themselves")]

pub mod builder;
mod each;
pub mod models;
pub mod reader;
pub mod reference;
pub mod time;
pub mod tiny;
