//! A flow as people type it: `tcp 198.51.100.7:51234 > 203.0.113.10:443`, addresses of IPv6 in brackets where a port
//! follows, `icmp 198.51.100.7 > 203.0.113.10` for an echo request.

use common::bind::Protocol;
use common::flow::FlowKey;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// The first packet of a connection, seen from the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// What of it can be hashed.
    pub key: FlowKey,
    /// What it carries.
    pub transport: Transport,
}

/// What a flow carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// The client's port, then the service's.
    Ports(Protocol, u16, u16),
    /// An ICMP or ICMPv6 echo request.
    Echo,
}

/// Text that is no flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected `tcp|udp CLIENT:PORT > VIP:PORT` or `icmp CLIENT > VIP`, IPv6 addresses with ports as [ADDRESS]:PORT"
)]
pub struct FlowError;

impl Flow {
    /// TCP or UDP, from client to service.
    pub fn ports(protocol: Protocol, client: SocketAddr, service: SocketAddr) -> Self {
        let ports = (client.port(), service.port());
        let key = FlowKey { src_addr: client.ip(), dst_addr: service.ip(), ports: Some(ports) };
        Self { key, transport: Transport::Ports(protocol, ports.0, ports.1) }
    }

    /// An echo request.
    pub fn echo(client: IpAddr, service: IpAddr) -> Self {
        Self { key: FlowKey { src_addr: client, dst_addr: service, ports: None }, transport: Transport::Echo }
    }
}

impl FromStr for Flow {
    type Err = FlowError;

    fn from_str(text: &str) -> Result<Self, FlowError> {
        let (protocol, ends) = text.trim().split_once(char::is_whitespace).ok_or(FlowError)?;
        let (client, service) = ends.split_once('>').ok_or(FlowError)?;
        let flow = match protocol {
            "tcp" => Self::ports(Protocol::Tcp, end(client)?, end(service)?),
            "udp" => Self::ports(Protocol::Udp, end(client)?, end(service)?),
            "icmp" | "icmpv6" => Self::echo(end(client)?, end(service)?),
            _ => return Err(FlowError),
        };
        if flow.key.src_addr.is_ipv4() == flow.key.dst_addr.is_ipv4() { Ok(flow) } else { Err(FlowError) }
    }
}

fn end<T: FromStr>(text: &str) -> Result<T, FlowError> {
    text.trim().parse().map_err(|_| FlowError)
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FlowKey { src_addr, dst_addr, .. } = self.key;
        match self.transport {
            Transport::Ports(protocol, client, service) => {
                let (client, service) =
                    (SocketAddr::new(src_addr, client), SocketAddr::new(dst_addr, service));
                write!(f, "{protocol} {client} > {service}")
            }
            Transport::Echo => write!(f, "icmp {src_addr} > {dst_addr}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_read_back() {
        for text in [
            "tcp 198.51.100.7:51234 > 203.0.113.10:443",
            "udp [2001:db8::7]:53 > [2001:db8::10]:5000",
            "icmp 198.51.100.7 > 203.0.113.10",
            "icmp 2001:db8::7 > 2001:db8::10",
        ] {
            assert_eq!(text.parse::<Flow>().unwrap().to_string(), text);
        }
        assert_eq!(
            "tcp 1.2.3.4:5>1.2.3.5:6".parse::<Flow>().unwrap().to_string(),
            "tcp 1.2.3.4:5 > 1.2.3.5:6"
        );
    }

    #[test]
    fn what_is_no_flow_is_refused() {
        for text in [
            "",
            "tcp",
            "tcp 1.2.3.4:5",
            "tcp 1.2.3.4 > 1.2.3.5:6",
            "sctp 1.2.3.4:5 > 1.2.3.5:6",
            "tcp 1.2.3.4:5 > [::1]:6",
            "tcp ::1:5 > ::1:6",
            "icmp 1.2.3.4:5 > 1.2.3.5:6",
            "tcp 1.2.3.4:70000 > 1.2.3.5:6",
        ] {
            assert_eq!(text.parse::<Flow>(), Err(FlowError), "{text}");
        }
    }
}
