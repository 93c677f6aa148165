//! The program `rope-cpu`: a command line over the library `rope_cpu`.

mod cli;
mod numbers;
mod server;

use std::{env, process::ExitCode};

fn main() -> ExitCode {
    cli::run(env::args_os().collect())
}
