//! `rope-cpu open`: serves a model and opens its page in the browser.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{error::Error, note, serve};

/// Runs the command, until Ctrl-C or SIGTERM.
///
/// # Errors
/// As for [`serve::run`], and if the server is to have no page.
pub fn run(args: &serve::Args) -> Result<(), Error> {
    if args.listen.no_ui {
        return Err(Error::usage("--no-ui: open shows the page; without it use rope-cpu serve"));
    }
    serve::serve(args, serve::Stop::OnSignal, |addresses, _| {
        addresses.first().copied().into_iter().for_each(show);
        Ok(())
    })
}

/// Opens the page at an address, and prints its URL and how to stop the server.
fn show(address: SocketAddr) {
    let page = format!("http://{}/", SocketAddr::new(reachable(address.ip()), address.port()));
    match open::that_detached(&page) {
        Ok(()) => note(format_args!("the browser shows {page} where you can ask the model")),
        Err(_) => note(format_args!("open {page} in a browser, where you can ask the model")),
    }
    note("press Ctrl-C here to stop");
}

/// Returns an address that a browser on this machine can open: `::` and `0.0.0.0` become loopback.
pub fn reachable(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        address => address,
    }
}
