//! One taker of an interface's frames. Two directors would forward each packet twice; and what a redirector's kernel
//! program hands up looks to a director like a client's packet, which it would forward again, without end.

use std::io;
use std::thread::sleep;
use std::time::Duration;

use anyhow::bail;

use crate::sys::interface::Interface;
use crate::sys::local::{Name, holder};
use crate::sys::process::user;

/// While it lives, no other process of this network namespace gets it for the same interface.
#[derive(Debug)]
pub(crate) struct Claim(#[expect(dead_code, reason = "held, not used")] Option<Name>);

impl Claim {
    /// Refused if a process of the same user, or of root, has it. Another user has no business with the name, nor has
    /// a socket that does not listen: `say` hears of it, and it is ignored. Whoever lets a listener's queue run full
    /// cannot be told from a director, and is taken for one.
    pub(crate) fn on(interface: &Interface, say: impl Fn(std::fmt::Arguments<'_>)) -> anyhow::Result<Self> {
        let (name, on) = (format!("tryst/frames/{}", interface.index), &interface.name);
        for _ in 0..ATTEMPTS {
            match Name::take(&name) {
                Ok(name) => return Ok(Self(Some(name))),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(error.into()),
            }
            match holder(&name) {
                Ok(other) if other != 0 && other != user() => {
                    say(format_args!("{on}: user {other} holds the name @{name}, and is no director"));
                    return Ok(Self(None));
                }
                Ok(_) => bail!(
                    "{on}: another director, or a redirector in mode auto or xdp, takes its frames already; a \
                     redirector beside a director runs in mode socket"
                ),
                // Nobody has the name any more, or whoever has it does not listen yet.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => sleep(PAUSE),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => bail!(
                    "{on}: whoever holds the name @{name} has too many questions waiting to be told from a director"
                ),
                Err(error) => return Err(error.into()),
            }
        }
        say(format_args!("{on}: a socket that does not listen holds the name @{name}, and is no director's"));
        Ok(Self(None))
    }
}

/// A director that has just taken the name listens a moment later, and one that has just ended leaves it free.
const ATTEMPTS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(10);
