//! Tests of `rope-cpu serve` over HTTP.
#![cfg(unix)]

mod access;
mod adapters;
mod calls;
mod create;
mod disk;
mod echoes;
mod faults;
mod guided;
pub mod harness;
mod interfaces;
mod killed;
mod limits;
mod load;
mod log;
mod many;
mod memory;
mod metrics;
mod open;
mod open_webui;
mod other_interfaces;
mod page;
mod pulls;
mod reasoning;
mod requests;
mod rerank;
mod sleep;
mod slots;
mod slow;
mod speculation;
mod stop;
mod system_faults;
mod work;
