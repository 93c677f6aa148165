//! Tests of the program: its command line, and `rope-cpu serve` over HTTP.

mod cli;
mod server;
