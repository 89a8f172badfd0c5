//! Ring blocks in the kernel's layout: valid, truncated and with wrong numbers.

use proptest::prelude::*;

use super::*;

/// A block body in the kernel's layout, with these frames; `tag` is a tag that receive offload stripped.
fn body(frames: &[&[u8]], tag: Option<u16>) -> Vec<u8> {
    let mut body = vec![0; 36];
    put(&mut body, 0, u32::try_from(frames.len()).unwrap());
    put(&mut body, 4, 48);
    for frame in frames {
        let offset = body.len();
        let mac = 112;
        let len = (mac + frame.len()).next_multiple_of(16);
        body.resize(offset + len, 0);
        put(&mut body, offset, u32::try_from(len).unwrap());
        put(&mut body, offset + 12, u32::try_from(frame.len()).unwrap());
        put(&mut body, offset + 16, u32::try_from(frame.len()).unwrap());
        if let Some(tag) = tag {
            put(&mut body, offset + 20, libc::TP_STATUS_VLAN_VALID);
            put(&mut body, offset + 32, u32::from(tag));
        }
        body[offset + 24..offset + 26].copy_from_slice(&u16::try_from(mac).unwrap().to_ne_bytes());
        body[offset + mac..offset + mac + frame.len()].copy_from_slice(frame);
    }
    body
}

fn put(body: &mut [u8], offset: usize, value: u32) {
    body[offset..offset + 4].copy_from_slice(&value.to_ne_bytes());
}

fn read(body: &mut [u8]) -> (Vec<Vec<u8>>, u32) {
    let mut entries = Entries::of(body);
    let mut frames = Vec::new();
    while let Some(frame) = entries.frame() {
        frames.push(frame.bytes.to_vec());
    }
    (frames, entries.malformed)
}

#[test]
fn frames_come_out_as_they_went_in() {
    let frames: [&[u8]; 3] = [&[1; 60], &[2; 61], &[3; 1514]];
    let (read, malformed) = read(&mut body(&frames, None));
    assert_eq!((read, malformed), (frames.map(<[u8]>::to_vec).to_vec(), 0));
}

#[test]
fn a_stripped_vlan_tag_is_put_back() {
    let frame: Vec<u8> = (0..60).collect();
    let (read, _) = read(&mut body(&[&frame], Some(0x2005)));
    let expected = [&frame[..12], &[0x81, 0, 0x20, 5], &frame[12..]].concat();
    assert_eq!(read, [expected]);
}

#[test]
fn each_lie_about_an_entry_costs_that_frame_only() {
    let frames: [&[u8]; 2] = [&[1; 60], &[2; 60]];
    let lies: [(&str, usize, &[u8]); 5] = [
        ("the frame ends behind the block", 12, &u32::MAX.to_ne_bytes()),
        ("the frame begins behind the block", 24, &u16::MAX.to_ne_bytes()),
        ("the frame begins in its own header", 24, &8_u16.to_ne_bytes()),
        ("no room for the virtio_net_hdr", 24, &50_u16.to_ne_bytes()),
        ("shorter than an Ethernet header", 12, &13_u32.to_ne_bytes()),
    ];
    for (lie, offset, value) in lies {
        let mut body = body(&frames, None);
        body[36 + offset..36 + offset + value.len()].copy_from_slice(value);
        assert_eq!(read(&mut body), (vec![frames[1].to_vec()], 1), "{lie}");
    }
}

#[test]
fn a_lie_about_the_next_entry_ends_the_block() {
    let frames: [&[u8]; 3] = [&[1; 60]; 3];
    for next in [u32::MAX, 1 << 20] {
        let mut body = body(&frames, None);
        put(&mut body, 36, next);
        assert_eq!(read(&mut body), (vec![frames[0].to_vec()], 2), "next entry at {next}");
    }
}

#[test]
fn a_count_that_is_too_high_ends() {
    let mut body = body(&[&[1; 60]], None);
    put(&mut body, 0, u32::MAX);
    let (frames, malformed) = read(&mut body);
    assert_eq!((frames.len(), malformed), (1, u32::MAX - 1));
    // An entry that points at itself is read as often as the block's count, not more.
    put(&mut body, 0, 1000);
    put(&mut body, 36, 0);
    assert_eq!(read(&mut body).0.len(), 1000);
}

#[test]
fn the_first_entry_cannot_lie_before_the_body() {
    for first in [0, 11] {
        let mut body = body(&[&[1; 60]], None);
        put(&mut body, 4, first);
        assert_eq!(read(&mut body), (Vec::new(), 1));
    }
}

#[test]
fn frames_for_other_hosts_are_marked() {
    let mut body = body(&[&[1; 60], &[2; 60]], None);
    // `sll_pkttype` of the first entry.
    body[36 + 48 + 10] = libc::PACKET_OTHERHOST;
    let mut entries = Entries::of(&mut body);
    assert!(entries.frame().unwrap().foreign);
    assert!(!entries.frame().unwrap().foreign);
}

#[test]
fn offloads_are_read_at_every_length() {
    let header: Vec<u8> = [&[1, 1][..], &[0; 4], &34_u16.to_ne_bytes(), &16_u16.to_ne_bytes()].concat();
    let full = Offloads::read(&header);
    assert_eq!(full.partial, Some(unfinished::Partial { start: 34, field: 16 }));
    assert_eq!(full.merged, Merged::Segments);
    for (kind, merged) in
        [(0, Merged::No), (0x84, Merged::Segments), (3, Merged::Datagrams), (5, Merged::Datagrams)]
    {
        assert_eq!(Offloads::read(&[0, kind]).merged, merged, "kind {kind}");
    }
    for cut in 0..header.len() {
        assert_eq!(Offloads::read(&header[..cut]).partial, None, "cut at {cut}");
    }
}

proptest! {
    #[test]
    fn random_memory_is_read_within_bounds(mut body in proptest::collection::vec(any::<u8>(), 0..512), count in 0..64_u32) {
        if body.len() >= 4 {
            put(&mut body, 0, count);
        }
        let (frames, _) = read(&mut body);
        prop_assert!(frames.len() <= 64);
    }

    #[test]
    fn a_changed_octet_never_reads_outside(offset in 0..300_usize, value: u8, tag: bool) {
        let mut body = body(&[&[1; 60], &[2; 60]], tag.then_some(5));
        let offset = offset % body.len();
        body[offset] = value;
        // The change can make the count large; reading still ends at the block's end or repeats entries.
        if word(&body, 0).unwrap() < 10_000 {
            read(&mut body);
        }
    }
}
