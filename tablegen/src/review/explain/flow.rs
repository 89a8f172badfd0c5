//! A flow in text form: `tcp 198.51.100.7:51234 > 203.0.113.10:443`, or `icmp 198.51.100.7 > 203.0.113.10` for an echo
//! request. An IPv6 address with a port stands in brackets.

use common::bind::{Bind, Protocol};
use common::flow::FlowKey;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// A flow from the client to the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// The packet fields that can be hashed.
    pub key: FlowKey,
    /// The protocol above IP.
    pub transport: Transport,
}

/// The protocol above IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// TCP or UDP, the client's port, the service's port.
    Ports(Protocol, u16, u16),
    /// An ICMP or ICMPv6 echo request.
    Echo,
}

/// Text that does not describe a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected `tcp|udp CLIENT:PORT > VIP:PORT` or `icmp CLIENT > VIP`, IPv6 addresses with ports as [ADDRESS]:PORT"
)]
pub struct FlowError;

impl Flow {
    /// A TCP or UDP flow.
    pub fn ports(protocol: Protocol, client: SocketAddr, service: SocketAddr) -> Self {
        let ports = (client.port(), service.port());
        let key = FlowKey { src_addr: client.ip(), dst_addr: service.ip(), ports: Some(ports) };
        Self { key, transport: Transport::Ports(protocol, ports.0, ports.1) }
    }

    /// Echo requests.
    pub fn echo(client: IpAddr, service: IpAddr) -> Self {
        Self { key: FlowKey { src_addr: client, dst_addr: service, ports: None }, transport: Transport::Echo }
    }

    /// Whether a bind covers the flow. A bind covers an echo request if its prefix contains the destination.
    pub fn matches(&self, bind: &Bind) -> bool {
        match self.transport {
            Transport::Ports(protocol, _, port) => bind.matches(self.key.dst_addr, protocol, port),
            Transport::Echo => bind.prefix.contains(self.key.dst_addr),
        }
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
    fn displayed_flows_parse_to_the_same_text() {
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
    fn text_that_is_not_a_flow_is_refused() {
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
