//! The policy as a table: name, frame, expected verdict. The kernel program is checked with the same table.

use std::{hash::Hasher, net::IpAddr, sync::LazyLock};

use common::{
    backend::State,
    bind::Protocol::{Tcp, Udp},
    flow::HashFields,
};
use dataplane::pipeline::{Answer, BackendKey, DropReason, Echo, NextHop, PassReason, Pipeline, Underlay};

use super::{
    frames::{V4, V6, ethernet, extension, fragment_header, icmp, icmpv6, octets, tcp, udp, unfinished},
    tables::{GATEWAY_MAC, OWN_MAC, TableSpec, UNDERLAY, bind, via_gateway},
};

pub(crate) const CLIENT: &str = "198.51.100.7";
pub(crate) const CLIENT6: &str = "2001:db8:c::7";
/// TCP 443 and 80, source address and port are hashed.
pub(crate) const WEB: &str = "203.0.113.10";
pub(crate) const WEB6: &str = "2001:db8::10";
/// UDP 53, only the source address is hashed.
pub(crate) const DNS: &str = "203.0.113.20";
pub(crate) const DNS6: &str = "2001:db8::20";
/// TCP 443, with a second look-up by source address.
pub(crate) const ALT: &str = "203.0.113.70";
pub(crate) const ALT6: &str = "2001:db8::70";

/// The expected verdict on a frame.
#[derive(Debug, Clone)]
pub(crate) enum Expect {
    /// Encapsulated by this table, with the row of the hash of these octets; the outer source port is
    /// computed with this number.
    Sent {
        table: &'static str,
        hashed: Vec<u8>,
        client_port: u16,
    },
    /// Encapsulated for this host.
    Local {
        table: &'static str,
        hashed: Vec<u8>,
        client_port: u16,
    },
    Pass(PassReason),
    Drop(DropReason),
    Answer(Answer),
}

#[derive(Debug, Clone)]
pub(crate) struct Vector {
    pub(crate) name: &'static str,
    pub(crate) frame: Vec<u8>,
    pub(crate) expect: Expect,
    pub(crate) echo: Echo,
}

pub(crate) static PIPELINE: LazyLock<Pipeline> = LazyLock::new(|| {
    let tables = specs().into_iter().map(TableSpec::build).collect();
    let forwarding = common::table::ForwardingTable::new(None, tables).unwrap();
    Pipeline::new(forwarding, UNDERLAY, next_hop).unwrap()
});

/// All backends are reached through the gateway, except two: 10.0.9.1 is this host, 10.0.9.2 is unknown.
fn next_hop(key: BackendKey, address: IpAddr) -> Option<NextHop> {
    match address.to_string().as_str() {
        "10.0.9.1" => Some(NextHop::Local),
        "10.0.9.2" => None,
        _ => via_gateway(key, address),
    }
}

pub(crate) fn with_echo(echo: Echo) -> Pipeline {
    PIPELINE.with_underlay(Underlay { echo, ..UNDERLAY }, next_hop)
}

#[allow(dead_code, reason = "not all test programs change it")]
pub(crate) fn with_mtu(mtu: u16) -> Pipeline {
    PIPELINE.with_underlay(Underlay { mtu, ..UNDERLAY }, next_hop)
}

fn specs() -> Vec<TableSpec> {
    let four = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"];
    let tcp443 = |vips: &[&str]| vips.iter().map(|vip| bind(vip, Tcp, 443, 443)).collect::<Vec<_>>();
    let mut web = tcp443(&[WEB, WEB6]);
    web.extend([bind(WEB, Tcp, 80, 80), bind("203.0.113.50", Udp, 54, 54)]);
    web.extend([bind("203.0.113.128/26", Tcp, 65_530, 65_535), bind("203.0.113.160/27", Udp, 1, 9)]);
    let mut empty = TableSpec::new("empty", tcp443(&["203.0.113.60"]), &["10.0.0.9"]);
    empty.backends[0].state = State::Inactive;
    let ports = HashFields::DEFAULT;
    vec![
        TableSpec {
            fields: ports,
            alt_fields: HashFields::SRC_ADDR,
            ..TableSpec::new("alt", tcp443(&[ALT, ALT6]), &four)
        },
        TableSpec::new(
            "dns",
            vec![bind(DNS, Udp, 53, 53), bind(DNS6, Udp, 53, 53), bind("203.0.113.50", Udp, 53, 53)],
            &four,
        ),
        empty,
        TableSpec::new("here", tcp443(&["203.0.113.80"]), &["10.0.9.1"]),
        TableSpec::new("lost", tcp443(&["203.0.113.90"]), &["10.0.9.2"]),
        TableSpec {
            fields: ports,
            ..TableSpec::new("mixed", tcp443(&["203.0.113.40"]), &["10.0.0.1", "fd00::2", "fd00::3"])
        },
        TableSpec {
            fields: ports,
            ..TableSpec::new("six", tcp443(&["203.0.113.30", "2001:db8::30"]), &["fd00::1", "fd00::2"])
        },
        TableSpec { fields: ports, ..TableSpec::new("web", web, &four) },
    ]
}

/// Row and hop list (backend indices) of the hash of these octets, computed with siphasher.
pub(crate) fn expected_hops(pipeline: &Pipeline, table: &str, hashed: &[u8]) -> (usize, Vec<IpAddr>, u64) {
    let tables = pipeline.forwarding().tables();
    let at = tables.iter().position(|t| t.name == table).unwrap();
    let mut hasher = siphasher::sip::SipHasher24::new_with_key(&tables[at].hash_key.octets());
    hasher.write(hashed);
    let hash = hasher.finish();
    let row = u32::try_from(hash % u64::from(tables[at].rows())).unwrap();
    let hops = tables[at].hops.get(row).iter().map(|b| tables[at].backends[usize::from(*b)].address);
    (at, hops.collect(), hash)
}

fn sent(table: &'static str, hashed: Vec<u8>, client_port: u16) -> Expect {
    Expect::Sent { table, hashed, client_port }
}

fn with_port(address: &str, port: u16) -> Vec<u8> {
    [octets(address), port.to_be_bytes().to_vec()].concat()
}

const PORT: u16 = 51_234;

fn web() -> Expect {
    sent("web", with_port(CLIENT, PORT), PORT)
}

fn web6() -> Expect {
    sent("web", with_port(CLIENT6, PORT), PORT)
}

fn syn() -> Vec<u8> {
    tcp(PORT, 443, 2, b"")
}

fn to(destination: &'static str) -> V4 {
    V4::new(CLIENT, destination, 6)
}

fn to6(destination: &'static str, next_header: u8) -> V6 {
    V6::new(CLIENT6, destination, next_header)
}

/// All vectors. They cover each reason of each kind at least once; a test checks that.
pub(crate) fn all() -> Vec<Vector> {
    let sets = [
        transport(),
        link(),
        fragments(),
        errors(),
        echoes(),
        limits(),
        others(),
        sources(),
        sources_without_ports(),
        clients(),
        options(),
    ];
    sets.into_iter().flatten().collect()
}

fn vector(name: &'static str, frame: Vec<u8>, expect: Expect) -> Vector {
    Vector { name, frame, expect, echo: Echo::Forward }
}

fn transport() -> Vec<Vector> {
    let no_bind = || Expect::Pass(PassReason::NoBind);
    let options = |len: usize| V4 { options: vec![1; len], ..to(WEB) }.frame(&syn());
    let chain = [extension(43), extension(60), extension(6), syn()].concat();
    let ah = [vec![6, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1], vec![0; 12], syn()].concat();
    let data = vec![b'x'; 1_400];
    vec![
        vector("v4_syn", to(WEB).frame(&syn()), web()),
        vector("v4_second_port", to(WEB).frame(&tcp(PORT, 80, 2, b"")), web()),
        vector("v4_data_1400", to(WEB).frame(&tcp(PORT, 443, 16, &data)), web()),
        vector("v4_source_port_0", to(WEB).frame(&tcp(0, 443, 2, b"")), sent("web", with_port(CLIENT, 0), 0)),
        vector("v4_options_4", options(4), web()),
        vector("v4_options_40", options(40), web()),
        vector(
            "v4_udp",
            V4 { protocol: 17, ..to(DNS) }.frame(&udp(PORT, 53, b"?")),
            sent("dns", octets(CLIENT), PORT),
        ),
        vector("v4_range_first", to("203.0.113.130").frame(&tcp(PORT, 65_530, 2, b"")), web()),
        vector("v4_range_last", to("203.0.113.191").frame(&tcp(PORT, 65_535, 2, b"")), web()),
        vector("v4_range_below", to("203.0.113.130").frame(&tcp(PORT, 65_529, 2, b"")), no_bind()),
        vector("v4_prefix_beyond", to("203.0.113.192").frame(&tcp(PORT, 65_530, 2, b"")), no_bind()),
        vector(
            "v4_protocol_of_another_bind",
            V4 { protocol: 17, ..to(WEB) }.frame(&udp(PORT, 443, b"")),
            no_bind(),
        ),
        vector("v4_other_port", to(WEB).frame(&tcp(PORT, 444, 2, b"")), no_bind()),
        vector("v4_other_address", to("203.0.113.11").frame(&syn()), no_bind()),
        vector("v4_second_look_up", to(ALT).frame(&syn()), sent("alt", with_port(CLIENT, PORT), PORT)),
        vector(
            "v4_over_v6_underlay",
            to("203.0.113.30").frame(&syn()),
            sent("six", with_port(CLIENT, PORT), PORT),
        ),
        vector(
            "v4_mixed_underlay",
            to("203.0.113.40").frame(&syn()),
            sent("mixed", with_port(CLIENT, PORT), PORT),
        ),
        vector(
            "v4_mixed_underlay_other",
            to("203.0.113.40").frame(&tcp(7, 443, 2, b"")),
            sent("mixed", with_port(CLIENT, 7), 7),
        ),
        vector("v6_syn", to6(WEB6, 6).frame(&syn()), web6()),
        vector("v6_udp", to6(DNS6, 17).frame(&udp(PORT, 53, b"?")), sent("dns", octets(CLIENT6), PORT)),
        vector(
            "v6_over_v6_underlay",
            to6("2001:db8::30", 6).frame(&syn()),
            sent("six", with_port(CLIENT6, PORT), PORT),
        ),
        vector("v6_hop_by_hop", to6(WEB6, 0).frame(&[extension(6), syn()].concat()), web6()),
        vector("v6_three_extensions", to6(WEB6, 0).frame(&chain), web6()),
        vector("v6_authentication", to6(WEB6, 51).frame(&ah), web6()),
        vector(
            "v6_atomic_fragment",
            to6(WEB6, 44).frame(&[fragment_header(6, 0, false), syn()].concat()),
            web6(),
        ),
        vector("v4_unfinished_checksum", to(WEB).frame(&unfinished(CLIENT, WEB, 6, syn())), web()),
        vector("v6_unfinished_checksum", to6(WEB6, 6).frame(&unfinished(CLIENT6, WEB6, 6, syn())), web6()),
        vector(
            "v4_unfinished_udp",
            V4 { protocol: 17, ..to(DNS) }.frame(&unfinished(CLIENT, DNS, 17, udp(PORT, 53, b"?"))),
            sent("dns", octets(CLIENT), PORT),
        ),
        vector(
            "v6_unfinished_udp",
            to6(DNS6, 17).frame(&unfinished(CLIENT6, DNS6, 17, udp(PORT, 53, b"?"))),
            sent("dns", octets(CLIENT6), PORT),
        ),
        vector("v6_other_port", to6(WEB6, 6).frame(&tcp(PORT, 80, 2, b"")), no_bind()),
    ]
}

fn link() -> Vec<Vector> {
    let not_ip = || Expect::Pass(PassReason::NotIp);
    let packet = to(WEB).packet(&syn());
    let mut padded = to(WEB).frame(&syn());
    padded.resize(60, 0xee);
    let mut padded6 = to6(WEB6, 6).frame(&syn());
    padded6.extend([0xee; 9]);
    vec![
        vector("vlan", ethernet(&[0x8100, 0x0800], &packet), web()),
        vector("qinq", ethernet(&[0x88a8, 0x8100, 0x0800], &packet), web()),
        vector("vlan_v6", ethernet(&[0x8100, 0x86dd], &to6(WEB6, 6).packet(&syn())), web6()),
        vector("three_tags", ethernet(&[0x88a8, 0x8100, 0x8100, 0x0800], &packet), not_ip()),
        vector("padding", padded, web()),
        vector("padding_v6", padded6, web6()),
        vector("arp", ethernet(&[0x0806], &[0; 46]), not_ip()),
        vector("802.3_length", ethernet(&[0x0026], &[0x42; 46]), not_ip()),
        vector("mpls", ethernet(&[0x8847], &packet), not_ip()),
        vector("runt", vec![2; 13], Expect::Pass(PassReason::Malformed)),
        vector("tag_cut", ethernet(&[0x8100], &[0; 3]), Expect::Pass(PassReason::Malformed)),
    ]
}

fn fragments() -> Vec<Vector> {
    let fragment = |destination, protocol, word, payload: &[u8]| {
        V4 { protocol, fragment: word, ..to(destination) }.frame(payload)
    };
    let drop = || Expect::Drop(DropReason::Fragment);
    let by_address = || sent("dns", octets(CLIENT), 0);
    let first6 =
        |vip, next, payload: Vec<u8>| to6(vip, 44).frame(&[fragment_header(next, 0, true), payload].concat());
    let later6 = |vip, next| to6(vip, 44).frame(&[fragment_header(next, 185, false), vec![0; 20]].concat());
    vec![
        vector("fragment_first", fragment(DNS, 17, 0x2000, &udp(PORT, 53, &[1; 1_000])), by_address()),
        vector("fragment_later", fragment(DNS, 17, 185, &[0; 700]), by_address()),
        vector("fragment_later_reads_no_ports", fragment(DNS, 17, 185, &udp(9, 9, b"")), by_address()),
        vector("fragment_of_two_octets", fragment(DNS, 17, 185, &[0; 2]), by_address()),
        vector("fragment_where_ports_decide", fragment(WEB, 6, 0x2000, &syn()), drop()),
        vector("fragment_later_where_ports_decide", fragment(WEB, 6, 185, &syn()), drop()),
        vector("fragment_of_two_tables", fragment("203.0.113.50", 17, 185, &[0; 64]), drop()),
        vector(
            "fragment_of_no_bind",
            fragment("203.0.113.11", 17, 185, &[0; 64]),
            Expect::Pass(PassReason::NoBind),
        ),
        vector(
            "fragment_of_unbound_protocol",
            fragment(WEB, 17, 185, &[0; 64]),
            Expect::Pass(PassReason::NoBind),
        ),
        vector("fragment_of_icmp", fragment(DNS, 1, 0x2000, &icmp(8, 0, [0; 4], b"")), drop()),
        vector(
            "fragment_of_icmp_elsewhere",
            fragment("203.0.113.11", 1, 0x2000, &icmp(8, 0, [0; 4], b"")),
            Expect::Pass(PassReason::NoBind),
        ),
        vector(
            "fragment_of_gre",
            fragment(DNS, 47, 0x2000, &[0; 64]),
            Expect::Pass(PassReason::OtherProtocol),
        ),
        vector(
            "v6_fragment_first",
            first6(DNS6, 17, udp(PORT, 53, &[1; 64])),
            sent("dns", octets(CLIENT6), 0),
        ),
        vector("v6_fragment_later", later6(DNS6, 17), sent("dns", octets(CLIENT6), 0)),
        vector("v6_fragment_where_ports_decide", later6(WEB6, 6), drop()),
        vector("v6_fragment_hides_extension", later6(DNS6, 60), drop()),
    ]
}

fn errors() -> Vec<Vector> {
    let router = |destination| V4::new("192.0.2.99", destination, 1);
    let unmatched = || Expect::Pass(PassReason::IcmpUnmatched);
    let answer = |from: &'static str| V4::new(from, CLIENT, 6);
    let quoted = answer(WEB).packet(&tcp(443, PORT, 16, &[0; 40]));
    let error = |quote: &[u8]| icmp(3, 4, [0, 0, 5, 0x78], quote);
    let with_options = V4 { options: vec![1; 8], ..answer(WEB) }.packet(&tcp(443, PORT, 16, b""));
    let udp_quote = V4 { protocol: 17, ..answer(DNS) }.packet(&udp(53, PORT, b"a"));
    let later = V4 { protocol: 17, fragment: 185, ..answer(DNS) }.packet(&[0; 64]);
    let later_tcp = V4 { fragment: 185, ..answer(WEB) }.packet(&[0; 64]);
    let quoted6 = V6::new(WEB6, CLIENT6, 6).packet(&tcp(443, PORT, 16, b""));
    let extended6 = V6::new(WEB6, CLIENT6, 60).packet(&[extension(6), tcp(443, PORT, 16, b"")].concat());
    let error6 = |kind, quote: &[u8]| to6(WEB6, 58).frame(&icmpv6(CLIENT6, WEB6, kind, [0, 0, 5, 0], quote));
    let web_as_quoted = |port| sent("web", with_port(CLIENT, port), port);
    vec![
        vector("too_big_8_octets", router(WEB).frame(&error(&quoted[..28])), web()),
        vector("too_big_whole", router(WEB).frame(&error(&quoted)), web()),
        vector("too_big_7_octets", router(WEB).frame(&error(&quoted[..27])), unmatched()),
        vector("too_big_no_quote", router(WEB).frame(&error(b"")), unmatched()),
        vector("too_big_header_cut", router(WEB).frame(&icmp(3, 4, [0; 4], b"")[..6]), unmatched()),
        vector("unreachable_port", router(WEB).frame(&icmp(3, 3, [0; 4], &quoted)), web()),
        vector("unreachable_filtered", router(WEB).frame(&icmp(3, 13, [0; 4], &quoted)), web()),
        vector("time_exceeded", router(WEB).frame(&icmp(11, 0, [0; 4], &quoted)), web()),
        vector("parameter_problem", router(WEB).frame(&icmp(12, 0, [0; 4], &quoted)), web()),
        vector("quoted_options", router(WEB).frame(&error(&with_options[..36])), web()),
        vector("quoted_options_7_octets", router(WEB).frame(&error(&with_options[..35])), unmatched()),
        vector("quoted_udp", router(DNS).frame(&error(&udp_quote)), sent("dns", octets(CLIENT), PORT)),
        vector("quoted_later_fragment", router(DNS).frame(&error(&later)), sent("dns", octets(CLIENT), 0)),
        vector(
            "quoted_later_fragment_where_ports_decide",
            router(WEB).frame(&error(&later_tcp)),
            unmatched(),
        ),
        vector("quote_of_another_vip", router(DNS).frame(&error(&quoted)), unmatched()),
        vector(
            "quote_of_unbound_port",
            router(WEB).frame(&error(&answer(WEB).packet(&tcp(81, PORT, 16, b"")))),
            unmatched(),
        ),
        vector(
            "quote_of_icmp",
            router(WEB).frame(&error(&V4 { protocol: 1, ..answer(WEB) }.packet(&[0; 8]))),
            unmatched(),
        ),
        vector(
            "quote_other_port",
            router(WEB).frame(&error(&answer(WEB).packet(&tcp(443, 9, 16, b"")))),
            web_as_quoted(9),
        ),
        vector(
            "error_elsewhere",
            router("203.0.113.11").frame(&error(&quoted)),
            Expect::Pass(PassReason::NoBind),
        ),
        vector(
            "redirect",
            router(WEB).frame(&icmp(5, 1, [0; 4], &quoted)),
            Expect::Pass(PassReason::IcmpOther),
        ),
        vector("v6_too_big", error6(2, &quoted6), web6()),
        vector("v6_too_big_8_octets", error6(2, &quoted6[..48]), web6()),
        vector("v6_too_big_7_octets", error6(2, &quoted6[..47]), unmatched()),
        vector("v6_unreachable", error6(1, &quoted6), web6()),
        vector("v6_unknown_error", error6(100, &quoted6), web6()),
        vector("v6_quoted_extension", error6(2, &extended6), web6()),
        vector("v6_quote_cut_in_chain", error6(2, &extended6[..44]), unmatched()),
    ]
}

fn echoes() -> Vec<Vector> {
    let ping = V4 { protocol: 1, ..to(WEB) }.frame(&icmp(8, 0, [0, 7, 0, 1], b"ping"));
    let ping6 = to6(WEB6, 58).frame(&icmpv6(CLIENT6, WEB6, 128, [0, 7, 0, 1], b"ping"));
    let elsewhere = V4 { protocol: 1, ..to("203.0.113.11") }.frame(&icmp(8, 0, [0, 7, 0, 1], b"ping"));
    let reply = V4 { protocol: 1, ..to(WEB) }.frame(&icmp(0, 0, [0, 7, 0, 1], b"ping"));
    let neighbour = to6(WEB6, 58).frame(&icmpv6(CLIENT6, WEB6, 135, [0; 4], &[0; 16]));
    let cut = V4 { protocol: 1, ..to(WEB) }.frame(&[8, 0, 0, 0, 0, 7, 0]);
    let mut group = ping.clone();
    group[..6].copy_from_slice(&[1, 0, 0x5e, 0, 0, 1]);
    let zeros = V4 { protocol: 1, ..to(WEB) }.frame(&icmp(8, 0, [0; 4], &[0; 56]));
    let set = |echo, vector: Vector| Vector { echo, ..vector };
    let answer = || Expect::Answer(Answer::Echo);
    let passed = || Expect::Pass(PassReason::Echo);
    vec![
        vector("echo", ping.clone(), sent("web", octets(CLIENT), 0x1234)),
        vector("echo_v6", ping6.clone(), sent("web", octets(CLIENT6), 0x2345)),
        vector("echo_elsewhere", elsewhere, Expect::Pass(PassReason::NoBind)),
        vector("echo_reply", reply, Expect::Pass(PassReason::IcmpOther)),
        vector("neighbour_solicitation", neighbour, Expect::Pass(PassReason::IcmpOther)),
        set(Echo::Pass, vector("echo_passed", ping.clone(), passed())),
        set(Echo::Pass, vector("echo_passed_v6", ping6.clone(), passed())),
        set(Echo::Answer, vector("echo_answered", ping, answer())),
        set(Echo::Answer, vector("echo_answered_v6", ping6, answer())),
        set(Echo::Answer, vector("echo_answered_all_zero", zeros, answer())),
        set(Echo::Answer, vector("echo_to_a_group", group, passed())),
        set(Echo::Answer, vector("echo_cut", cut, Expect::Drop(DropReason::Truncated))),
    ]
}

fn limits() -> Vec<Vector> {
    let too_big = || Expect::Answer(Answer::TooBig);
    let silent = || Expect::Drop(DropReason::TooBig);
    let payload = |ip_len: usize, header: usize| tcp(PORT, 443, 16, &vec![b'x'; ip_len - header - 20]);
    let v4 = |vip, len| to(vip).frame(&payload(len, 20));
    let v6 = |vip, len| to6(vip, 6).frame(&payload(len, 40));
    let later = V4 { protocol: 17, fragment: 185, ..to(DNS) }.frame(&[0; 1_480]);
    let quoted = V4::new(WEB, CLIENT, 6).packet(&tcp(443, PORT, 16, &[0; 1_432]));
    let error = V4::new("192.0.2.99", WEB, 1).frame(&icmp(3, 4, [0; 4], &quoted));
    let mut to_group = v4(WEB, 1_461);
    to_group[..6].copy_from_slice(&[0xff; 6]);
    vec![
        vector("fits_exactly", v4(WEB, 1_460), web()),
        vector("too_big_by_one", v4(WEB, 1_461), too_big()),
        vector("too_big_1500", v4(WEB, 1_500), too_big()),
        vector("too_big_without_df", V4 { fragment: 0, ..to(WEB) }.frame(&payload(1_500, 20)), too_big()),
        vector("too_big_vlan", ethernet(&[0x8100, 0x0800], &to(WEB).packet(&payload(1_500, 20))), too_big()),
        vector("too_big_second_look_up", v4(ALT, 1_500), too_big()),
        vector("fits_exactly_v6", v6(WEB6, 1_460), web6()),
        vector("too_big_v6_by_one", v6(WEB6, 1_461), too_big()),
        vector("too_big_v6_second_look_up", v6(ALT6, 1_500), too_big()),
        vector("too_big_v6_underlay", v4("203.0.113.30", 1_429), too_big()),
        vector("fits_v6_underlay", v4("203.0.113.30", 1_428), sent("six", with_port(CLIENT, PORT), PORT)),
        vector("too_big_later_fragment", later, silent()),
        vector("too_big_error", error, silent()),
        vector("too_big_to_a_group", to_group, silent()),
    ]
}

fn others() -> Vec<Vector> {
    let drop = Expect::Drop;
    let pass = Expect::Pass;
    let cut = |frame: Vec<u8>| frame[..frame.len() - 1].to_vec();
    let mut bad_sum = to(WEB).frame(&syn());
    bad_sum[24] ^= 1;
    let mut bad_sum_options = V4 { options: vec![1; 8], ..to(WEB) }.frame(&syn());
    bad_sum_options[35] ^= 1;
    let mut bad_sum_elsewhere = to("203.0.113.11").frame(&syn());
    bad_sum_elsewhere[24] ^= 1;
    let edit = |at: usize, value: u8| {
        let mut frame = to(WEB).frame(&syn());
        frame[at] = value;
        frame
    };
    let long_chain = [vec![extension(60); 9].concat(), syn()].concat();
    let here = || Expect::Local { table: "here", hashed: octets(CLIENT), client_port: PORT };
    vec![
        vector("here", to("203.0.113.80").frame(&syn()), here()),
        vector("no_route", to("203.0.113.90").frame(&syn()), drop(DropReason::NoRoute)),
        vector("empty_row", to("203.0.113.60").frame(&syn()), drop(DropReason::NoBackend)),
        vector("truncated", cut(to(WEB).frame(&syn())), drop(DropReason::Truncated)),
        vector("truncated_elsewhere", cut(to("203.0.113.11").frame(&syn())), pass(PassReason::NoBind)),
        vector(
            "truncated_gre",
            cut(V4 { protocol: 47, ..to(WEB) }.frame(&[0; 30])),
            pass(PassReason::OtherProtocol),
        ),
        vector("truncated_v6", cut(to6(WEB6, 6).frame(&syn())), drop(DropReason::Truncated)),
        vector(
            "truncated_v6_extensions",
            cut(to6(WEB6, 0).frame(&[extension(6), syn()].concat())),
            drop(DropReason::Truncated),
        ),
        vector("no_ports", to(WEB).frame(&[1, 187, 0]), drop(DropReason::Truncated)),
        vector("no_ports_elsewhere", to("203.0.113.11").frame(&[1, 187, 0]), pass(PassReason::NoBind)),
        vector("no_icmp", V4 { protocol: 1, ..to(WEB) }.frame(&[]), drop(DropReason::Truncated)),
        vector("total_length_below_header", edit(17, 19), drop(DropReason::Truncated)),
        vector("v6_chain_cut", to6(WEB6, 0).frame(&[6, 1, 0, 0, 0, 0, 0, 0]), drop(DropReason::Truncated)),
        vector("v6_chain_too_long", to6(WEB6, 60).frame(&long_chain), drop(DropReason::ExtensionChain)),
        vector(
            "v6_chain_too_long_elsewhere",
            to6("2001:db8::11", 60).frame(&long_chain),
            pass(PassReason::NoBind),
        ),
        vector("header_checksum", bad_sum, drop(DropReason::HeaderChecksum)),
        vector("header_checksum_options", bad_sum_options, drop(DropReason::HeaderChecksum)),
        vector("header_checksum_elsewhere", bad_sum_elsewhere, pass(PassReason::NoBind)),
        vector("version_5", edit(14, 0x55), pass(PassReason::Malformed)),
        vector("header_length_4", edit(14, 0x44), pass(PassReason::Malformed)),
        vector("header_beyond_frame", edit(14, 0x4f), pass(PassReason::Malformed)),
        vector("v4_header_cut", ethernet(&[0x0800], &[0x45; 19]), pass(PassReason::Malformed)),
        vector("v6_header_cut", ethernet(&[0x86dd], &[0x60; 39]), pass(PassReason::Malformed)),
        vector(
            "v6_says_version_4",
            ethernet(&[0x86dd], &to(WEB).packet(&[0; 60])),
            pass(PassReason::Malformed),
        ),
        vector("ospf", V4 { protocol: 89, ..to(WEB) }.frame(&[0; 44]), pass(PassReason::OtherProtocol)),
        vector("esp", to6(WEB6, 50).frame(&[0; 44]), pass(PassReason::OtherProtocol)),
        vector(
            "icmpv6_in_v4",
            V4 { protocol: 58, ..to(WEB) }.frame(&[128; 44]),
            pass(PassReason::OtherProtocol),
        ),
        vector("icmp_in_v6", to6(WEB6, 1).frame(&[8; 44]), pass(PassReason::OtherProtocol)),
    ]
}

const NO_CLIENTS: [(&str, &str); 11] = [
    ("source_0.0.0.0", "0.0.0.0"),
    ("source_0.255.255.255", "0.255.255.255"),
    ("source_127.0.0.1", "127.0.0.1"),
    ("source_127.255.255.255", "127.255.255.255"),
    ("source_224.0.0.1", "224.0.0.1"),
    ("source_239.255.255.255", "239.255.255.255"),
    ("source_240.0.0.0", "240.0.0.0"),
    ("source_255.255.255.255", "255.255.255.255"),
    ("source_own_vip", WEB),
    ("source_vip_of_another_protocol", DNS),
    ("source_vip_of_another_table", "203.0.113.60"),
];
const NO_CLIENTS6: [(&str, &str); 9] = [
    ("v6_source_unspecified", "::"),
    ("v6_source_loopback", "::1"),
    ("v6_source_group", "ff02::1"),
    ("v6_source_first_group", "ff00::"),
    ("v6_source_mapped", "::ffff:198.51.100.7"),
    ("v6_source_mapped_first", "::ffff:0.0.0.0"),
    ("v6_source_own_vip", WEB6),
    ("v6_source_vip_of_another_protocol", DNS6),
    ("v6_source_vip_of_another_table", ALT6),
];

fn no_client() -> Expect {
    Expect::Drop(DropReason::Source)
}

/// Addresses that no client can have, over TCP and UDP; to an address without a bind they pass.
fn sources() -> Vec<Vector> {
    let large = tcp(PORT, 443, 16, &[b'x'; 1_441]);
    let mut all = vec![
        vector(
            "source_vip_udp",
            V4 { protocol: 17, ..V4::new(DNS, DNS, 17) }.frame(&udp(53, 53, b"?")),
            no_client(),
        ),
        vector("v6_source_vip_udp", V6::new(DNS6, DNS6, 17).frame(&udp(53, 53, b"?")), no_client()),
        vector("source_too_big", V4::new("127.0.0.1", WEB, 6).frame(&large), no_client()),
        vector("source_vlan", ethernet(&[0x8100, 0x0800], &V4::new(WEB, WEB, 6).packet(&syn())), no_client()),
        vector(
            "source_padding",
            {
                let mut frame = V4::new("0.0.0.0", WEB, 6).frame(&syn());
                frame.resize(60, 0xee);
                frame
            },
            no_client(),
        ),
        vector("source_second_look_up", V4::new(WEB, ALT, 6).frame(&syn()), no_client()),
        vector(
            "source_options",
            V4 { options: vec![1; 4], ..V4::new(WEB, WEB, 6) }.frame(&syn()),
            no_client(),
        ),
        vector(
            "v6_source_extension",
            V6::new("::1", WEB6, 0).frame(&[extension(6), syn()].concat()),
            no_client(),
        ),
        vector(
            "source_elsewhere",
            V4::new("127.0.0.1", "203.0.113.11", 6).frame(&syn()),
            Expect::Pass(PassReason::NoBind),
        ),
        vector(
            "source_of_no_bind",
            V4::new("127.0.0.1", WEB, 6).frame(&tcp(PORT, 444, 2, b"")),
            Expect::Pass(PassReason::NoBind),
        ),
        vector(
            "v6_source_elsewhere",
            V6::new("::1", "2001:db8::11", 6).frame(&syn()),
            Expect::Pass(PassReason::NoBind),
        ),
    ];
    all.extend(NO_CLIENTS.map(|(name, from)| vector(name, V4::new(from, WEB, 6).frame(&syn()), no_client())));
    all.extend(
        NO_CLIENTS6.map(|(name, from)| vector(name, V6::new(from, WEB6, 6).frame(&syn()), no_client())),
    );
    all
}

/// The same addresses in fragments, in echo requests, of routers that report errors, and of the clients whose
/// packets are quoted.
fn sources_without_ports() -> Vec<Vector> {
    let ping = icmp(8, 0, [0, 7, 0, 1], b"ping");
    let ping6 = icmpv6("::1", WEB6, 128, [0, 7, 0, 1], b"ping");
    let error = |router, client| {
        let quote = V4::new(WEB, client, 6).packet(&tcp(443, PORT, 16, b""));
        V4::new(router, WEB, 1).frame(&icmp(3, 4, [0, 0, 5, 0x78], &quote))
    };
    let error6 = |router, client| {
        let quote = V6::new(WEB6, client, 6).packet(&tcp(443, PORT, 16, b""));
        V6::new(router, WEB6, 58).frame(&icmpv6(router, WEB6, 2, [0, 0, 5, 0], &quote))
    };
    let router = "192.0.2.99";
    let fragment =
        |source, word| V4 { fragment: word, ..V4::new(source, DNS, 17) }.frame(&udp(53, 53, &[0; 64]));
    let later6 =
        |source| V6::new(source, DNS6, 44).frame(&[fragment_header(17, 185, false), vec![0; 20]].concat());
    let answered = |name, frame| Vector { echo: Echo::Answer, ..vector(name, frame, no_client()) };
    vec![
        vector("source_fragment_first", fragment(DNS, 0x2000), no_client()),
        vector("source_fragment_later", fragment("240.0.0.1", 185), no_client()),
        vector("v6_source_fragment", later6("::"), no_client()),
        vector("v6_source_fragment_vip", later6(DNS6), no_client()),
        vector("source_echo", V4::new("127.0.0.1", WEB, 1).frame(&ping), no_client()),
        vector("source_echo_vip", V4::new(WEB, WEB, 1).frame(&ping), no_client()),
        vector("v6_source_echo", V6::new("::1", WEB6, 58).frame(&ping6), no_client()),
        answered("source_echo_answered", V4::new("224.0.0.7", WEB, 1).frame(&ping)),
        answered("v6_source_echo_answered", V6::new("::1", WEB6, 58).frame(&ping6)),
        vector("source_router", error("127.0.0.1", CLIENT), no_client()),
        vector("source_router_vip", error(DNS, CLIENT), no_client()),
        vector("source_quoted_client", error(router, "0.0.0.0"), no_client()),
        vector("source_quoted_client_vip", error(router, WEB), no_client()),
        vector("source_quoted_client_group", error(router, "239.1.2.3"), no_client()),
        vector("v6_source_router", error6("ff02::2", CLIENT6), no_client()),
        vector("v6_source_quoted_client", error6(CLIENT6, "::1"), no_client()),
        vector("v6_source_quoted_client_vip", error6(CLIENT6, WEB6), no_client()),
        vector(
            "source_error_unmatched",
            V4::new("127.0.0.1", WEB, 1).frame(&icmp(3, 4, [0; 4], b"")),
            Expect::Pass(PassReason::IcmpUnmatched),
        ),
    ]
}

/// Unusual addresses that clients and routers have. A bind of a shorter prefix does not name an address.
fn clients() -> Vec<Vector> {
    let client = |name, from: &'static str| {
        vector(name, V4::new(from, WEB, 6).frame(&syn()), sent("web", with_port(from, PORT), PORT))
    };
    let client6 = |name, from: &'static str| {
        vector(name, V6::new(from, WEB6, 6).frame(&syn()), sent("web", with_port(from, PORT), PORT))
    };
    let quoted = V4::new(WEB, CLIENT, 6).packet(&tcp(443, PORT, 16, b""));
    let error = |from| V4::new(from, WEB, 1).frame(&icmp(3, 4, [0, 0, 5, 0x78], &quoted));
    vec![
        client("client_1.0.0.0", "1.0.0.0"),
        client("client_126.255.255.255", "126.255.255.255"),
        client("client_128.0.0.0", "128.0.0.0"),
        client("client_223.255.255.255", "223.255.255.255"),
        client("client_private", "10.1.2.3"),
        client("client_link_local", "169.254.1.2"),
        client("client_in_a_short_prefix", "203.0.113.130"),
        client6("v6_client_::2", "::2"),
        client6("v6_client_before_mapped", "::fffe:ffff:ffff"),
        client6("v6_client_after_mapped", "::1:0:0:0"),
        client6("v6_client_before_groups", "feff::1"),
        client6("v6_client_link_local", "fe80::7"),
        client6("v6_client_private", "fd00::7"),
        vector("router_private", error("192.168.1.1"), web()),
        vector("router_link_local", error("169.254.0.1"), web()),
    ]
}

/// Valid options, and invalid ones (RFC 791 §3.1).
fn options() -> Vec<Vector> {
    let with = |destination, protocol, options: &[u8], payload: &[u8]| {
        V4 { options: options.to_vec(), ..V4::new(CLIENT, destination, protocol) }.frame(payload)
    };
    let drop = || Expect::Drop(DropReason::Options);
    let ping = icmp(8, 0, [0, 7, 0, 1], b"ping");
    let quoted = V4::new(WEB, CLIENT, 6).packet(&tcp(443, PORT, 16, b""));
    vec![
        vector("options_record_route", with(WEB, 6, &[7, 7, 4, 0, 0, 0, 0, 0], &syn()), web()),
        vector("options_end_then_anything", with(WEB, 6, &[0, 9, 200, 0], &syn()), web()),
        vector("options_of_two_octets", with(WEB, 6, &[130, 2, 1, 1], &syn()), web()),
        vector("options_length_0", with(WEB, 6, &[7, 0, 0, 0], &syn()), drop()),
        vector("options_length_1", with(WEB, 6, &[7, 1, 0, 0], &syn()), drop()),
        vector("options_beyond_header", with(WEB, 6, &[7, 5, 4, 0], &syn()), drop()),
        vector("options_without_length", with(WEB, 6, &[1, 1, 1, 7], &syn()), drop()),
        vector("options_second_is_bad", with(WEB, 6, &[148, 4, 0, 0, 7, 9, 0, 0], &syn()), drop()),
        vector("options_echo", with(WEB, 1, &[7, 0, 0, 0], &ping), drop()),
        Vector {
            echo: Echo::Answer,
            ..vector("options_echo_answered", with(WEB, 1, &[7, 0, 0, 0], &ping), drop())
        },
        vector("options_error", with(WEB, 1, &[7, 0, 0, 0], &icmp(3, 4, [0; 4], &quoted)), drop()),
        vector(
            "options_fragment",
            V4 { fragment: 185, options: vec![7, 0, 0, 0], ..V4::new(CLIENT, DNS, 17) }.frame(&[0; 64]),
            drop(),
        ),
        vector(
            "options_elsewhere",
            with("203.0.113.11", 6, &[7, 0, 0, 0], &syn()),
            Expect::Pass(PassReason::NoBind),
        ),
    ]
}

/// The link addresses of frames to backends that are reached through the gateway.
pub(crate) const LINK: [[u8; 6]; 2] = [GATEWAY_MAC.0, OWN_MAC.0];
