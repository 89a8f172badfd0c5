//! A second reader of a pipeline's output: it shares no code with the pipeline and checks every octet.

use std::net::IpAddr;

use dataplane::pipeline::{Pipeline, Verdict};
use etherparse::{NetSlice, SlicedPacket, TransportSlice};

use super::frames::{checksum, link_len};

/// Fills output buffers, so that a missing octet is detected.
pub(crate) const UNWRITTEN: u8 = 0xa5;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) verdict: Verdict,
    /// What was written.
    pub(crate) frame: Vec<u8>,
}

/// Runs a frame twice, with differently filled buffers: the verdict and all written octets must be equal, and
/// the octets after them unchanged.
pub(crate) fn run(pipeline: &Pipeline, frame: &[u8]) -> Outcome {
    let [one, two] = [UNWRITTEN, !UNWRITTEN].map(|fill| {
        let mut out = vec![fill; pipeline.room(frame.len())];
        let verdict = pipeline.process(frame, &mut out);
        let len = written(&verdict);
        if len > 0 {
            assert!(out[len..].iter().all(|octet| *octet == fill), "wrote behind the end of {verdict:?}");
        }
        out.truncate(len);
        Outcome { verdict, frame: out }
    });
    assert_eq!(one, two, "octets that were never written are part of the output");
    one
}

pub(crate) fn written(verdict: &Verdict) -> usize {
    match verdict {
        Verdict::Encapsulate(done) | Verdict::Local(done) => usize::try_from(done.len).unwrap(),
        Verdict::Answer { len, .. } => usize::try_from(*len).unwrap(),
        Verdict::Pass(_) | Verdict::Drop(_) => 0,
    }
}

/// An encapsulated frame, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) source: IpAddr,
    pub(crate) primary: IpAddr,
    pub(crate) hops: Vec<IpAddr>,
    pub(crate) port: u16,
    pub(crate) traffic_class: u8,
    pub(crate) inner_protocol: u8,
    pub(crate) inner: Vec<u8>,
}

/// Reads an encapsulated frame and checks every length, checksum and constant in it.
pub(crate) fn read(frame: &[u8]) -> Read {
    let sliced = SlicedPacket::from_ethernet(frame).expect("a frame that etherparse reads");
    let (source, primary, traffic_class, ip_len) = match sliced.net.as_ref().expect("IP") {
        NetSlice::Ipv4(ip) => {
            let h = ip.header();
            assert_eq!(h.header_checksum(), h.to_header().calc_header_checksum(), "outer checksum");
            assert_eq!((h.ihl(), h.ttl(), h.identification()), (5, 64, 0));
            assert!(h.dont_fragment() && !h.more_fragments());
            let total = usize::from(h.total_len());
            (IpAddr::from(h.source()), IpAddr::from(h.destination()), h.slice()[1], total)
        }
        NetSlice::Ipv6(ip) => {
            let h = ip.header();
            assert_eq!((h.hop_limit(), h.flow_label().value()), (64, 0));
            let total = 40 + usize::from(h.payload_length());
            (IpAddr::from(h.source()), IpAddr::from(h.destination()), h.traffic_class(), total)
        }
        NetSlice::Arp(_) => panic!("ARP"),
    };
    assert_eq!(frame.len(), 14 + ip_len, "the frame ends with the packet");
    let Some(TransportSlice::Udp(udp)) = sliced.transport else { panic!("no UDP in {sliced:?}") };
    assert_eq!((udp.destination_port(), udp.checksum()), (19_523, 0));
    assert_eq!(usize::from(udp.length()), 8 + udp.payload().len());
    assert!(udp.source_port() >= 0x8000);
    let (hops, inner_protocol, inner) = read_gue(udp.payload());
    assert!(hops.iter().all(|hop| hop.is_ipv4() == primary.is_ipv4()), "hops of the primary's family");
    let port = udp.source_port();
    Read { source, primary, hops, port, traffic_class, inner_protocol, inner: inner.to_vec() }
}

fn read_gue(gue: &[u8]) -> (Vec<IpAddr>, u8, &[u8]) {
    let count = usize::from(gue[7]);
    let hop_len = if gue[5] == 1 { 16 } else { 4 };
    assert_eq!(gue[0], u8::try_from(1 + count * hop_len / 4).unwrap(), "version 0, no control bit, hlen");
    assert_eq!([gue[2], gue[3], gue[4], gue[6]], [0; 4], "flags, private type, next hop");
    let (hops, inner) = gue[8..].split_at(count * hop_len);
    let address = |hop: &[u8]| match hop_len {
        4 => IpAddr::from(<[u8; 4]>::try_from(hop).unwrap()),
        _ => IpAddr::from(<[u8; 16]>::try_from(hop).unwrap()),
    };
    assert_eq!(gue[1], if inner[0] >> 4 == 4 { 4 } else { 41 }, "protocol of what is inside");
    (hops.chunks(hop_len).map(address).collect(), gue[1], inner)
}

/// Checks an answer to `frame`, except its type and data: sent back on the same link, from the VIP, complete
/// and valid.
pub(crate) fn check_answer(frame: &[u8], answer: &[u8]) -> Vec<u8> {
    assert_eq!((&answer[..6], &answer[6..12]), (&frame[6..12], &frame[..6]), "link addresses change places");
    let link_len = link_len(frame);
    assert_eq!(answer[12..link_len], frame[12..link_len], "tags and type");
    let (asked, said) = (&frame[link_len..], &answer[link_len..]);
    if said[0] >> 4 == 4 {
        assert_eq!(checksum(&said[..20]), 0, "header checksum");
        assert_eq!((said[0], &said[8..10]), (0x45, &[64, 1][..]), "a header of our own");
        // RFC 6864: an identification that is used once, or DF. The reply to an echo has the request's, but
        // for 0 without DF.
        let is_echo = said[20] == 0 && (asked[4..6] != [0, 0] || asked[6] & 0x40 != 0);
        let atomic = [asked[4], asked[5], asked[6] & 0x40, 0];
        assert!(if is_echo { said[4..8] == atomic } else { said[4..6] != [0, 0] && said[6..8] == [0, 0] });
        assert_eq!((&said[12..16], &said[16..20]), (&asked[16..20], &asked[12..16]));
        assert_eq!(usize::from(u16::from_be_bytes([said[2], said[3]])), said.len());
        assert_eq!(checksum(&said[20..]), 0, "ICMP checksum");
        return said[20..].to_vec();
    }
    assert_eq!((said[0] >> 4, &said[6..8]), (6, &[58, 64][..]), "a header of our own");
    assert_eq!((&said[8..24], &said[24..40]), (&asked[24..40], &asked[8..24]));
    let len = u16::from_be_bytes([said[4], said[5]]);
    assert_eq!(usize::from(len), said.len() - 40);
    let pseudo = [&said[8..40], &[0, 0], &len.to_be_bytes(), &[0, 0, 0, 58]].concat();
    assert_eq!(checksum(&[&pseudo, &said[40..]].concat()), 0, "ICMPv6 checksum");
    said[40..].to_vec()
}
