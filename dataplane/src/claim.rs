//! One taker of an interface's frames. Two directors would forward each packet twice; and what a redirector's kernel
//! program hands up looks to a director like a client's packet, which it would forward again, without end.

use std::io;

use anyhow::bail;

use crate::sys::interface::Interface;
use crate::sys::local::{Name, holder};
use crate::sys::process::user;

/// While it lives, no other process of this network namespace gets it for the same interface.
#[derive(Debug)]
pub(crate) struct Claim(#[expect(dead_code, reason = "held, not used")] Option<Name>);

impl Claim {
    /// Refused if a process of the same user, or of root, has it. Another user has no business with the name: `say`
    /// hears of it, and it is ignored.
    pub(crate) fn on(interface: &Interface, say: impl Fn(std::fmt::Arguments<'_>)) -> anyhow::Result<Self> {
        let name = format!("tryst/frames/{}", interface.index);
        match Name::take(&name) {
            Ok(name) => Ok(Self(Some(name))),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => match holder(&name) {
                Ok(other) if other != 0 && other != user() => {
                    let interface = &interface.name;
                    say(format_args!("{interface}: user {other} holds the name @{name}, and is no director"));
                    Ok(Self(None))
                }
                _ => bail!(
                    "{}: another director, or a redirector in mode auto or xdp, takes its frames already; a redirector \
                     beside a director runs in mode socket",
                    interface.name
                ),
            },
            Err(error) => Err(error.into()),
        }
    }
}
