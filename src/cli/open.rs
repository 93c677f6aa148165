//! `rope-cpu open`: serves a model and opens its page in the browser.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{error::Error, note, serve};

/// Runs the command, until Ctrl-C or SIGTERM.
///
/// # Errors
/// As for [`serve::run`].
pub fn run(args: &serve::Args) -> Result<(), Error> {
    serve::serve(args, |addresses| addresses.first().copied().map_or((), show))
}

/// Opens the page at an address, and prints where it is and how to stop.
fn show(address: SocketAddr) {
    let page = format!("http://{}/", SocketAddr::new(reachable(address.ip()), address.port()));
    match open::that_detached(&page) {
        Ok(()) => note(format_args!("the browser shows {page} where you can ask the model")),
        Err(_) => note(format_args!("open {page} in a browser, where you can ask the model")),
    }
    note("press Ctrl-C here to stop");
}

/// Returns the address by which this machine reaches one that it listens on.
fn reachable(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        address => address,
    }
}
